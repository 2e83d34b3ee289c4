// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// streamConfig is a configuration with groups and the servers of a stream app.
func streamConfig(groups, servers string) string {
	return "{\n\tdebug\n\tpersist_config off\n\tskip_install_trust\n" + groups + "\n\tstream {\n" + servers + "\n\t}\n}\n"
}

// serveStream starts Caddy with groups and stream servers.
func serveStream(t *testing.T, groups, servers string) *proxy {
	t.Helper()
	return start(t, streamConfig(groups, servers))
}

// front is the listen address of a port that the test calls name.
func front(name string) string { return fmt.Sprintf(`127.0.0.1:{{port %q}}`, name) }

// session is a client's connection with a deadline, closed with the test.
type session struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func open(t *testing.T, network, addr string) *session {
	t.Helper()
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return newSession(t, c)
}

func newSession(t *testing.T, c net.Conn) *session {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &session{c, t, bufio.NewReader(c)}
}

// tcp opens a session to a listener of p.
func (p *proxy) tcp(name string) *session {
	p.t.Helper()
	return open(p.t, "tcp", p.Addr(name))
}

// ask sends a line and returns the line that comes back, without its end.
func (s *session) ask(line string) string {
	s.t.Helper()
	s.say(line + "\n")
	return s.line()
}

func (s *session) say(text string) {
	s.t.Helper()
	_ = s.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(s, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) line() string {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(30 * time.Second))
	line, err := s.r.ReadString('\n')
	if err != nil {
		s.t.Fatalf("reading a line: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// rest is all that comes until the end; a reset is an end, too.
func (s *session) rest() string {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, err := io.ReadAll(s.r)
	if err != nil && !testnet.Broken(err) {
		s.t.Fatalf("reading to the end: %v after %d bytes", err, len(b))
	}
	return string(b)
}

func (s *session) closeWrite() {
	s.t.Helper()
	if err := s.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) port() string {
	_, port, _ := net.SplitHostPort(s.LocalAddr().String())
	return port
}

// ended waits for the access log's line of a session.
func (p *proxy) ended(s *session) testnet.Line {
	p.t.Helper()
	return p.WaitLine(p.t, 20*time.Second, "access log line of the session", func(l testnet.Line) bool {
		return l.Msg() == "session" && l.Fields["remote_port"] == s.port()
	})
}

// quiet checks that nothing is left of what has gone before.
func (p *proxy) quiet(base testnet.Usage) {
	p.t.Helper()
	p.waitConns(0)
	p.AssertReturnsTo(base, 20*time.Second)
}

// pipes is how many descriptors the pools of pipes may keep, which are those
// of the process and not of a session.
const pipes = 2 * 4 * 2

func TestStreamSessionsAlternateAndAreLogged(t *testing.T) {
	a, b := testnet.NewLines(t, ""), testnet.NewLines(t, "")
	p := serveStream(t, group("echo", a.Addr(), b.Addr()), `
		server `+front("off")+` {
			proxy_pass echo
			access_log
		}
		server `+front("on")+` {
			proxy_pass `+a.Addr()+` {
				half_close on
			}
			access_log
		}`)
	for _, backend := range []*testnet.Lines{a, b} {
		s := p.tcp("off")
		for _, word := range []string{"hello", "nginx"} {
			want := fmt.Sprintf("%d %s", backend.Port(), strings.ToUpper(word))
			if got := s.ask(word); got != want {
				t.Errorf("the answer is %q, want %q", got, want)
			}
		}
		s.Close()
		up := len(fmt.Sprintf("%d HELLO\n%d NGINX\n", backend.Port(), backend.Port()))
		l := p.ended(s)
		want := map[string]any{
			"level": "info", "logger": "stream.log.access", "status": 200, "protocol": "TCP",
			"bytes_received": 12, "bytes_sent": up,
			"upstream_addr": backend.Addr(), "upstream_bytes_sent": "12", "upstream_bytes_received": fmt.Sprint(up),
		}
		if !l.Has(want) {
			t.Errorf("the access log says %v, want %v", l.Fields, want)
		}
	}
	var phases []string
	for _, l := range p.Logs("phase") {
		if l.Has(map[string]any{"connection": 1}) {
			phases = append(phases, l.Fields["phase"].(string))
		}
	}
	if got, want := strings.Join(phases, " "), "post_accept preaccess access ssl preread content log"; got != want {
		t.Errorf("phases %s, want %s", got, want)
	}

	for name, want := range map[string]string{"off": "", "on": fmt.Sprintf("%d HELLO\n", a.Port())} {
		s := p.tcp(name)
		s.say("hello\n")
		s.closeWrite()
		if got := s.rest(); got != want && name == "on" {
			t.Errorf("half_close %s: the client got %q, want %q", name, got, want)
		}
		if l := p.ended(s); !l.Has(map[string]any{"status": 200}) {
			t.Errorf("half_close %s: %v", name, l.Fields)
		}
	}
}

// Case 37.
func TestStreamHalfCloseBringsALateAnswerWhole(t *testing.T) {
	answer := strings.Repeat("0123456789abcdef", 1<<16)
	b := testnet.NewTCP(t, func(c net.Conn, _ int) {
		_, _ = io.Copy(io.Discard, c)
		time.Sleep(time.Second)
		_, _ = io.WriteString(c, answer)
	})
	dir := shortDir(t)
	p := serveStream(t, "", `
		server `+front("front")+` unix/`+dir+`/front {
			proxy_pass `+b.Addr()+` {
				half_close on
			}
		}`)
	for _, s := range []*session{p.tcp("front"), open(t, "unix", dir+"/front")} {
		s.say("question")
		s.closeWrite()
		if got := s.rest(); got != answer {
			t.Errorf("%s: %d bytes came, want %d", s.RemoteAddr().Network(), len(got), len(answer))
		}
	}
}

// Case 38.
func TestStreamTimeoutEndsOnlySilentSessions(t *testing.T) {
	b := testnet.NewMute(t)
	p := serveStream(t, "", `
		server `+front("front")+` {
			proxy_pass `+b.Addr()+` {
				timeout 1s
			}
			access_log
		}`)
	began := time.Now()
	silent, busy := p.tcp("front"), p.tcp("front")
	ended := make(chan time.Duration, 1)
	go func() {
		_, _ = silent.Read(make([]byte, 1))
		ended <- time.Since(began)
	}()
	for range 6 {
		time.Sleep(500 * time.Millisecond)
		busy.say("x")
	}
	if d := <-ended; d < time.Second || d > 1800*time.Millisecond {
		t.Errorf("the silent session ended after %v, want 1 to 1.5 s", d)
	}
	_ = busy.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := busy.Read(make([]byte, 1)); !testnet.Broken(err) {
		t.Errorf("the busy session: %v, want its end", err)
	}
	if l := p.ended(busy); !l.Has(map[string]any{"status": 200, "bytes_received": 6}) {
		t.Errorf("the busy session: %v", l.Fields)
	}
}

// Case 39. A listener whose queue is full answers no connection.
func TestStreamConnectTimeoutLeadsToTheNextServer(t *testing.T) {
	b := testnet.NewLines(t, "")
	hole := blackHole(t)
	p := serveStream(t, group("g", hole, b.Addr()), `
		server `+front("front")+` {
			proxy_pass g {
				connect_timeout 200ms
			}
			access_log
		}`)
	began := time.Now()
	s := p.tcp("front")
	s.ask("hello")
	if d := time.Since(began); d < 150*time.Millisecond || d > 2*time.Second {
		t.Errorf("the answer came after %v, want 0.2 to 0.5 s", d)
	}
	s.Close()
	if l := p.ended(s); !l.Has(map[string]any{"upstream_addr": hole + ", " + b.Addr()}) {
		t.Errorf("the access log says %v", l.Fields)
	}
}

// Case 40, and more of it.
func TestStreamRefusedConnectionsGoToTheNextServer(t *testing.T) {
	b := testnet.NewLines(t, "")
	p := serveStream(t, group("g", testnet.RefusedAddr(t)+" max_fails=0", b.Addr()), `
		server `+front("front")+` {
			proxy_pass g
		}`)
	p.tcp("front").ask("warm")
	base := p.Usage()
	base.Descriptors += pipes
	want := fmt.Sprintf("%d HELLO", b.Port())
	for i := range 1000 {
		c, err := net.Dial("tcp", p.Addr("front"))
		if err != nil {
			t.Fatal(err)
		}
		s := &session{c, t, bufio.NewReader(c)}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if got := s.ask("hello"); got != want {
			t.Fatalf("connection %d: %q, want %q", i, got, want)
		}
		c.Close()
	}
	p.AssertReturnsTo(base, 20*time.Second)
}

// Case 42.
func TestStreamServersMaySpeakFirst(t *testing.T) {
	b := testnet.NewLines(t, "220 ready\n")
	p := serveStream(t, "", `
		server `+front("plain")+` {
			proxy_pass `+b.Addr()+`
		}
		server `+front("preread")+` {
			ssl_preread
			preread_timeout 300ms
			proxy_pass `+b.Addr()+`
			access_log
		}`)
	s := p.tcp("plain")
	if got := s.line(); got != "220 ready" {
		t.Errorf("the greeting is %q", got)
	}
	if got, want := s.ask("helo"), fmt.Sprintf("%d HELO", b.Port()); got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	silent := p.tcp("preread")
	if got := silent.rest(); got != "" {
		t.Errorf("a silent client on a preread server got %q", got)
	}
	if l := p.ended(silent); !l.Has(map[string]any{"status": 200, "upstream_addr": ""}) {
		t.Errorf("a silent client on a preread server: %v", l.Fields)
	}
}
