// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
)

//go:embed conf
var confs embed.FS

// bench is one run: the backends, and the proxies that are started for a mode.
type bench struct {
	options
	dir     string
	raw     *json.Encoder
	backend *process
	targets targets
	servers *streamServers
	running map[string]*peer // by configuration file
	leftOut map[string]bool  // likewise
}

// targets are the addresses that configurations proxy to.
type targets struct {
	Backends []string // HTTP
	Echo     []string
	Source   string
	Sink     string
	UDP      string
}

// peer is one running proxy.
type peer struct {
	name  string
	proc  *process
	ports map[string]int
	start func(context.Context) (*process, map[string]int, error) // once more
}

// kinds are the peers in the order in which tables show them.
var kinds = []struct {
	name         string
	http, stream string // configuration files; empty: does not do that
	program      func(ctx context.Context, b *bench) (string, error)
	args         func(program, conf string) []string
}{
	{"ours", "ours-http.Caddyfile", "ours-stream.Caddyfile", examplesCaddy, caddyArgs},
	{"stock", "stock-http.Caddyfile", "", examplesCaddy, caddyArgs},
	{"nginx", "nginx-http.conf", "nginx-stream.conf", installed("nginx"), nginxArgs},
	{"haproxy", "haproxy-http.cfg", "haproxy-stream.cfg", installed("haproxy"), func(program, conf string) []string {
		return []string{program, "-db", "-f", conf}
	}},
	{"caddy-l4", "", "caddy-l4-stream.Caddyfile", l4Caddy, caddyArgs},
}

func caddyArgs(program, conf string) []string {
	return []string{program, "run", "--adapter", "caddyfile", "--config", conf}
}

func nginxArgs(program, conf string) []string {
	return []string{program, "-p", filepath.Dir(conf), "-e", "stderr", "-c", conf}
}

func installed(program string) func(context.Context, *bench) (string, error) {
	return func(context.Context, *bench) (string, error) {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
		return exec.LookPath("/usr/sbin/" + program) // Debian
	}
}

// newBench starts the backends.
func newBench(ctx context.Context, o options) (b *bench, err error) {
	b = &bench{options: o, running: map[string]*peer{}, leftOut: map[string]bool{}}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	for _, name := range o.modes {
		m := modeByName(name)
		switch {
		case m.stream && b.servers == nil:
			if b.servers, err = startStreamServers(&b.targets); err != nil {
				return nil, err
			}
		case !m.stream && b.backend == nil:
			if err = b.startBackend(ctx); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// startBackend starts the nginx that answers every HTTP request.
func (b *bench) startBackend(ctx context.Context) error {
	program, err := installed("nginx")(ctx, b)
	if err != nil {
		return fmt.Errorf("the backend of all peers is nginx: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "1m"), make([]byte, 1<<20), 0o644); err != nil {
		return err
	}
	conf, ports, err := b.render("backend.conf")
	if err != nil {
		return err
	}
	if b.backend, err = startProcess("backend", b.dir, nginxArgs(program, conf)...); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		b.targets.Backends = append(b.targets.Backends, loopback(ports[name]))
	}
	return b.backend.waitPorts(ctx, slices.Collect(maps.Values(ports)))
}

func (b *bench) close() {
	for _, p := range b.running {
		p.proc.stop()
	}
	if b.backend != nil {
		b.backend.stop()
	}
	if b.servers != nil {
		b.servers.close()
	}
	os.RemoveAll(b.dir)
}

// peersOf starts what is not running yet and returns the peers of a mode. One
// that is not installed, or cannot run its configuration, is left out unless
// it was asked for by name.
func (b *bench) peersOf(m *mode) ([]*peer, error) {
	var peers []*peer
	for _, k := range kinds {
		conf := k.http
		if m.stream {
			conf = k.stream
		}
		asked := slices.Contains(b.peers, k.name)
		if conf == "" || b.leftOut[conf] || k.name == "haproxy" && m.front == "udp" || len(b.peers) > 0 && !asked {
			continue
		}
		p := b.running[conf]
		if p == nil {
			p = &peer{name: k.name, start: func(ctx context.Context) (*process, map[string]int, error) {
				return b.startPeer(ctx, k.name, conf, k.program, k.args)
			}}
			var err error
			if p.proc, p.ports, err = p.start(context.Background()); err != nil {
				if asked {
					return nil, err
				}
				b.leftOut[conf] = true
				fmt.Fprintf(os.Stderr, "%s is left out: %v\n", k.name, err)
				continue
			}
			b.running[conf] = p
		}
		peers = append(peers, p)
	}
	if len(peers) == 0 {
		return nil, errors.New("no peers")
	}
	return peers, nil
}

// restart ends the proxy and starts it once more.
func (p *peer) restart(ctx context.Context) error {
	p.proc.stop()
	proc, ports, err := p.start(ctx)
	if err == nil {
		p.proc, p.ports = proc, ports
	}
	return err
}

func (b *bench) startPeer(ctx context.Context, name, conf string, program func(context.Context, *bench) (string, error),
	args func(program, conf string) []string,
) (*process, map[string]int, error) {
	path, err := program(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	file, ports, err := b.render(conf)
	if err != nil {
		return nil, nil, err
	}
	proc, err := startProcess(name, filepath.Dir(file), args(path, file)...)
	if err != nil {
		return nil, nil, err
	}
	tcp := maps.Clone(ports)
	delete(tcp, "udp")
	if err := proc.waitPorts(ctx, slices.Collect(maps.Values(tcp))); err != nil {
		proc.stop()
		return nil, nil, err
	}
	return proc, ports, nil
}

// render writes a configuration, with ports chosen by the kernel, into a
// directory of its own.
func (b *bench) render(conf string) (file string, ports map[string]int, err error) {
	dir, err := os.MkdirTemp(b.dir, "conf")
	if err != nil {
		return "", nil, err
	}
	ports = map[string]int{}
	tmpl, err := template.New(conf).Funcs(template.FuncMap{"port": func(name string) (int, error) {
		port, err := freePort()
		ports[name] = port
		return port, err
	}}).ParseFS(confs, "conf/"+conf)
	if err != nil {
		return "", nil, err
	}
	data := struct {
		targets
		Dir, Body, User, TempPaths, StreamModule string
		CPUs, Descriptors, Connections           int
	}{targets: b.targets, Dir: b.dir, Body: strings.Repeat("x", 100), CPUs: runtime.NumCPU()}
	data.Descriptors = descriptorLimit()
	data.Connections = (data.Descriptors - spareDescriptors) / 2
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		data.TempPaths += what + "_temp_path " + filepath.Join(dir, what) + "; "
	}
	if os.Getuid() == 0 {
		data.User = "user root;"
	}
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	if _, err := os.Stat(module); err == nil {
		data.StreamModule = "load_module " + module + ";"
	}
	file = filepath.Join(dir, conf)
	f, err := os.Create(file)
	if err != nil {
		return "", nil, err
	}
	return file, ports, errors.Join(tmpl.Execute(f, data), f.Close())
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func peerNames(peers []*peer) []string {
	var names []string
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}
