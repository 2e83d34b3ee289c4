// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Process is a child process. It is ended with its test.
type Process struct {
	*Output
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	done   chan struct{}
	err    error // of Wait; written before done is closed
	stop   os.Signal
	quiet  bool // its output is not worth showing: a start that is tried again
	races  bool // its races have been reported
	logged bool
}

// spec is what start needs to know of a child.
type spec struct {
	name  string
	cmd   *exec.Cmd
	stop  os.Signal      // what asks it to end; SIGTERM if nil
	death syscall.Signal // what the kernel sends when we die; SIGKILL if 0
}

// start runs a child until the end of the test.
func start(t testing.TB, s spec) (*Process, error) {
	t.Helper()
	if s.stop == nil {
		s.stop = syscall.SIGTERM
	}
	if s.death == 0 {
		s.death = syscall.SIGKILL
	}
	p := &Process{Output: newOutput(), t: t, name: s.name, cmd: s.cmd, done: make(chan struct{}), stop: s.stop}
	dieWithParent(s.cmd, s.death)
	// A child that leaves processes of its own behind must not keep Wait
	// waiting for the ends of its pipes.
	s.cmd.WaitDelay = 5 * time.Second
	s.cmd.Stdout, s.cmd.Stderr = p.writer(), p.writer()
	started := make(chan error)
	go func() {
		// The kernel takes "parent" to mean the thread that forked: keep it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			p.err = s.cmd.Wait()
			p.end()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	t.Cleanup(p.cleanup)
	return p, nil
}

func (p *Process) cleanup() {
	if p.alive() {
		_ = p.cmd.Process.Signal(p.stop)
		select {
		case <-p.done:
		case <-time.After(3 * time.Second):
			// A test that cares whether it ends by itself calls Stop.
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	p.checkRaces()
	if p.t.Failed() && !p.quiet && !p.logged {
		p.logged = true
		p.t.Logf("output of %s (pid %d):\n%s", p.name, p.PID(), p.Text())
	}
}

// PID is the process id, also after the end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to the process.
func (p *Process) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("signalling %s: %v", p.name, err)
	}
}

// Wait waits at most d for the end of the process and fails the test if it does
// not come. The error is what exec.Cmd.Wait returned: nil for exit status 0.
func (p *Process) Wait(d time.Duration) error {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(d):
		p.t.Fatalf("%s has not ended after %v", p.name, d)
	}
	p.checkRaces()
	return p.err
}

// Stop asks the process to end and waits at most d for it; see Wait.
func (p *Process) Stop(d time.Duration) error {
	p.t.Helper()
	if p.alive() {
		p.Signal(p.stop)
	}
	return p.Wait(d)
}

// Kill ends the process without asking.
func (p *Process) Kill() {
	p.t.Helper()
	if p.alive() {
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}
