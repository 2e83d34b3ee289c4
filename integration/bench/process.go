// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is something that was started and will be ended.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
}

// startProcess starts a program whose home is dir.
func startProcess(name, dir string, argv ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: new(logBuffer), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// waitPorts waits until every port accepts connections.
func (p *process) waitPorts(ctx context.Context, ports []int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, port := range ports {
		for {
			c, err := net.DialTimeout("tcp", loopback(port), time.Second)
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-p.done:
				return fmt.Errorf("%s ended:\n%s", p.name, p.log)
			case <-ctx.Done():
				return fmt.Errorf("%s does not listen on port %d:\n%s", p.name, port, p.log)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// logBuffer keeps the beginning of what a process writes.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < 1<<16 {
		l.b.Write(p)
	}
	return len(p), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ticksPerSecond is USER_HZ, the unit of /proc/PID/stat: 100 on every
// architecture that Go knows.
const ticksPerSecond = 100

// family is a process and all its descendants.
func family(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, family(child)...)
			}
		}
	}
	return all
}

// cpuSeconds is the CPU time of a process, of the children that live and of
// those that it has waited for.
func cpuSeconds(pid int) float64 {
	ticks := 0.0
	for _, p := range family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			continue
		}
		// After the name, which may hold spaces: utime, stime, cutime and
		// cstime are fields 14 to 17 of the line, and 12 to 15 from here.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, i := range []int{11, 12, 13, 14} {
			v, _ := strconv.ParseFloat(f[i], 64)
			ticks += v
		}
	}
	return ticks / ticksPerSecond
}

// resident is the resident memory of a process and its descendants in bytes.
func resident(pid int) float64 {
	total := 0.0
	for _, p := range family(pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				total += kib * 1024
			}
		}
	}
	return total
}

// busySeconds is the CPU time that the whole machine has spent, what other
// guests stole included.
func busySeconds() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	ticks := 0.0
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // name, idle, iowait, guests
			continue
		}
		v, _ := strconv.ParseFloat(f, 64)
		ticks += v
	}
	return ticks / ticksPerSecond
}

// wantDescriptors is enough for 10,000 sessions with both ends in one process.
const wantDescriptors = 65536

// raiseDescriptorLimit raises the limit of this process and of what it starts,
// as far as it is allowed to.
func raiseDescriptorLimit() {
	want := syscall.Rlimit{Cur: wantDescriptors, Max: wantDescriptors}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) == nil {
		return
	}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
}

// descriptorLimit is the limit as it is now.
func descriptorLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return int(min(l.Cur, wantDescriptors))
}

// spareDescriptors are for listeners, logs and what is not a session.
const spareDescriptors = 200

// fitSessions is the number of idle sessions that the descriptor limit allows:
// two for each, in the proxy and here.
func (b *bench) fitSessions() int {
	limit := descriptorLimit()
	fit := (limit - spareDescriptors) / 2
	if fit < b.sessions {
		fmt.Fprintf(os.Stderr, "idle: %d sessions instead of %d, for a limit of %d descriptors\n", fit, b.sessions, limit)
		return fit
	}
	return b.sessions
}
