// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// RealServer is a program that other people wrote, started for a test.
type RealServer struct {
	*Process
	Dir   string // its files
	ports *portSet
}

// Addr is 127.0.0.1 and the port that its configuration called name.
func (s *RealServer) Addr(name string) string {
	s.t.Helper()
	addr, err := s.ports.addr(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return addr
}

// startReal starts a server, again on other ports if somebody took one, and
// waits until all of its TCP ports accept connections and, unless it is empty,
// a line with the text ready has come.
func startReal(t testing.TB, ready string, prepare func(dir string, ports *portSet) spec) *RealServer {
	t.Helper()
	var last string
	for range 5 {
		dir, err := os.MkdirTemp("", "cu")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		s := &RealServer{Dir: dir, ports: newPortSet()}
		if s.Process, err = start(t, prepare(dir, s.ports)); err != nil {
			t.Fatal(err)
		}
		if s.waitPorts(ready) {
			return s
		}
		s.quiet = true
		s.Process.Kill()
		if last = s.Text(); !portTaken(last, nil) {
			break
		}
	}
	t.Fatalf("the server did not start:\n%s", last)
	return nil
}

func (s *RealServer) waitPorts(ready string) bool {
	return Poll(startTimeout, func() bool {
		if !s.alive() {
			return true
		}
		for _, r := range s.ports.ports {
			if !accepts("tcp", r.Addr()) {
				return false
			}
		}
		return strings.Contains(s.Text(), ready)
	}) && s.alive()
}

// StartNginx starts nginx, found by Need, with a configuration that is a
// template as for StartCaddy. The pid file, the error log (standard error),
// daemon mode, the user, the stream module where there is a stream block, and
// http's paths for temporary files are taken care of; relative paths are under
// the server's Dir.
func StartNginx(t testing.TB, config string, data any) *RealServer {
	t.Helper()
	program := Need(t, "nginx")
	return startReal(t, "", func(dir string, ports *portSet) spec {
		text, _ := ports.expand(t, config, data)
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(nginxConfig(dir, text)), 0o644); err != nil {
			t.Fatal(err)
		}
		globals := "daemon off; pid " + filepath.Join(dir, "nginx.pid") + ";"
		if os.Getuid() == 0 {
			globals += " user root;"
		}
		cmd := exec.Command(program, "-p", dir, "-c", file, "-e", "stderr", "-g", globals)
		// SIGKILL would leave the workers behind.
		return spec{name: "nginx", cmd: cmd, stop: syscall.SIGTERM, death: syscall.SIGTERM}
	})
}

// nginxStream is where Debian keeps the stream module.
const nginxStream = "/usr/lib/nginx/modules/ngx_stream_module.so"

func nginxConfig(dir, text string) string {
	var temp strings.Builder
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, " %s_temp_path %s;", what, filepath.Join(dir, what))
	}
	text = strings.Replace(text, "http {", "http {"+temp.String(), 1)
	if strings.Contains(text, "stream {") && !strings.Contains(text, "load_module") {
		if _, err := os.Stat(nginxStream); err == nil {
			text = "load_module " + nginxStream + ";\n" + text
		}
	}
	if !strings.Contains(text, "events {") {
		text += "\nevents {}\n"
	}
	return text
}

// StartHAProxy starts haproxy, found by Need, with a configuration that is a
// template as for StartCaddy.
func StartHAProxy(t testing.TB, config string, data any) *RealServer {
	t.Helper()
	program := Need(t, "haproxy")
	return startReal(t, "", func(dir string, ports *portSet) spec {
		text, _ := ports.expand(t, config, data)
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return spec{name: "haproxy", cmd: exec.Command(program, "-db", "-f", file)}
	})
}

// StartRedis starts redis-server, found by Need, on a port called "redis" that
// keeps nothing on disk.
func StartRedis(t testing.TB, args ...string) *RealServer {
	t.Helper()
	program := Need(t, "redis-server")
	return startReal(t, "", func(dir string, ports *portSet) spec {
		cmd := exec.Command(program, append([]string{
			"--port", strconv.Itoa(ports.get(t, "redis")), "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "no", "--dir", dir,
		}, args...)...)
		return spec{name: "redis-server", cmd: cmd}
	})
}

// StartPostgres makes a database cluster and starts postgres, found by Need, on
// a port called "postgres". Its superuser is postgres, without a password.
// settings are lines of postgresql.conf. As root it runs as user postgres,
// since it refuses to run as root.
func StartPostgres(t testing.TB, settings ...string) *RealServer {
	t.Helper()
	initdb, postgres := Need(t, "initdb"), Need(t, "postgres")
	// It listens before it lets anybody in.
	return startReal(t, "database system is ready to accept connections", func(dir string, ports *portSet) spec {
		attr := unprivileged(t, dir)
		data := filepath.Join(dir, "data")
		cmd := exec.Command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C")
		cmd.Dir, cmd.SysProcAttr = dir, attr
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("initdb: %v\n%s", err, out)
		}
		args := []string{"-c", "lc_messages=C", "-D", data, "-p", strconv.Itoa(ports.get(t, "postgres")), "-h", "127.0.0.1", "-k", dir}
		for _, s := range append([]string{"fsync=off", "max_connections=50"}, settings...) {
			args = append(args, "-c", s)
		}
		run := exec.Command(postgres, args...)
		run.Dir, run.SysProcAttr = dir, unprivileged(t, dir)
		// SIGINT ends sessions at once; SIGTERM would wait for clients.
		return spec{name: "postgres", cmd: run, stop: syscall.SIGINT, death: syscall.SIGQUIT}
	})
}
