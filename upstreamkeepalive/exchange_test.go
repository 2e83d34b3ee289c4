// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

const okEmpty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// stalling answers the first request on its first connection, and then closes
// that connection when the second has come, without an answer.
func stalling(t *testing.T, bodies chan<- string) *rawServer {
	return rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		for i := 1; ; i++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			b, _ := io.ReadAll(req.Body)
			bodies <- string(b)
			if n == 1 && i == 2 {
				return
			}
			_, _ = io.WriteString(c, okEmpty)
		}
	})
}

// rewindable is a body that can be sent again.
type rewindable struct {
	*strings.Reader
	mu     sync.Mutex
	closed int
}

func (r *rewindable) Rewind() error {
	_, err := r.Seek(0, io.SeekStart)
	return err
}

func (r *rewindable) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed++
	return nil
}

func TestARequestThatMeetsAStaleConnection(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	tests := []struct {
		name       string
		method     string
		body       func() io.Reader
		staleFails bool
		arrivals   int // of the second request
		ok         bool
	}{
		{"GET is sent again", "GET", nil, false, 2, true},
		{"PUT with a small body is sent again", "PUT", func() io.Reader { return strings.NewReader("hello") }, false, 2, true},
		{"PUT with a rewindable body is sent again", "PUT", func() io.Reader { return &rewindable{Reader: strings.NewReader(big)} }, false, 2, true},
		{"PUT with a body that is gone is not", "PUT", func() io.Reader { return struct{ io.Reader }{strings.NewReader(big)} }, false, 1, false},
		{"POST is not", "POST", func() io.Reader { return strings.NewReader("hello") }, false, 1, false},
		{"PATCH is not", "PATCH", nil, false, 1, false},
		{"LOCK is not", "LOCK", nil, false, 1, false},
		{"GET is not, with nginx's rule", "GET", nil, true, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bodies := make(chan string, 8)
			s := stalling(t, bodies)
			tr := provisioned(t, new(Transport))
			get(t, tr, s.Addr())
			<-bodies
			var body io.Reader
			want := ""
			if tt.body != nil {
				body = tt.body()
				b, _ := io.ReadAll(tt.body())
				want = string(b)
			}
			req := request(t, tt.method, s.Addr(), body)
			if r, ok := body.(*rewindable); ok {
				req.ContentLength = int64(r.Len())
			}
			a := &exchange.Attempt{StaleFails: tt.staleFails}
			res, err := tr.Exchange(req, a)
			if (err == nil) != tt.ok {
				t.Fatalf("Exchange() = %v, want success %v", err, tt.ok)
			}
			if err == nil {
				res.Body.Close()
				if a.Reused {
					t.Error("Reused is set although the connection was fresh")
				}
			} else if e := err.(*exchange.Error); e.Kind != exchange.Failed || !e.Stale || !e.Sent {
				t.Errorf("error %+v, want failed, stale and sent", e)
			}
			if r, ok := body.(*rewindable); ok && r.closed != 1 {
				t.Errorf("the body was closed %d times, want 1", r.closed)
			}
			if len(bodies) != tt.arrivals {
				t.Fatalf("arrived %d times, want %d", len(bodies), tt.arrivals)
			}
			for range tt.arrivals {
				if got := <-bodies; got != want {
					t.Errorf("the server got %d bytes, want %d", len(got), len(want))
				}
			}
		})
	}
}

func TestAConnectionFoundClosedIsNoFailure(t *testing.T) {
	for _, tt := range []struct{ name, last, method string }{
		{"closed", "", "GET"},
		{"closed before a body", "", "POST"},
		{"unsolicited bytes", "HTTP/1.1 200 OK\r\n\r\n", "GET"},
		{"unsolicited bytes before a body", "HTTP/1.1 200 OK\r\n\r\n", "POST"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			did, closed := make(chan bool), make(chan bool)
			s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
				for i := 1; ; i++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(c, okEmpty)
					if n == 1 {
						if i > 1 {
							t.Error("it was sent over the first connection")
							return
						}
						<-did
						_, _ = io.WriteString(c, tt.last)
						if tt.last == "" {
							c.Close()
						}
						close(closed)
					}
				}
			})
			tr := provisioned(t, new(Transport))
			get(t, tr, s.Addr())
			close(did)
			<-closed
			eventually(t, "the peek sees it", func() bool {
				tr.cache.mu.Lock()
				defer tr.cache.mu.Unlock()
				c := tr.cache.recent.first
				return c == nil || !c.silent()
			})
			// Neither is repeated: it must not be sent there at all.
			var body io.Reader
			if tt.method == "POST" {
				body = strings.NewReader("x")
			}
			a := &exchange.Attempt{StaleFails: true}
			res, err := tr.Exchange(request(t, tt.method, s.Addr(), body), a)
			if err != nil {
				t.Fatalf("Exchange() = %v", err)
			}
			res.Body.Close()
			if a.Reused {
				t.Error("the stale connection was used")
			}
			if got := tr.ConnStats()[0]; got.Reused != 0 || got.Created != 2 {
				t.Errorf("%d reused and %d created, want 0 and 2", got.Reused, got.Created)
			}
		})
	}
}

func TestAHeadThatTheSocketDoesNotTakeAtOnceArrivesWhole(t *testing.T) {
	got := make(chan int, 1)
	s := rawTCP(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		got <- len(req.Header.Get("X-Large"))
		_, _ = io.WriteString(c, okEmpty)
	})
	const size = 32 << 20 // more than the kernel buffers
	req := request(t, "GET", s.Addr(), nil)
	req.Header.Set("X-Large", strings.Repeat("x", size))
	a := new(exchange.Attempt)
	res, err := provisioned(t, new(Transport)).Exchange(req, a)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if n := <-got; n != size || a.Sent() < size {
		t.Errorf("%d bytes of the header arrived and %d were counted, want %d", n, a.Sent(), size)
	}
}

func TestTheJanitorClosesWhatServersClose(t *testing.T) {
	closeIt, closed := make(chan bool), make(chan bool)
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, okEmpty)
		<-closeIt
		c.Close()
		close(closed)
	})
	tr := provisioned(t, new(Transport))
	get(t, tr, s.Addr())
	if n := idleConns(tr); n != 1 {
		t.Fatalf("%d idle, want 1", n)
	}
	close(closeIt)
	<-closed
	eventually(t, "the connection is gone", func() bool { return idleConns(tr) == 0 })
	eventually(t, "the janitor has ended", func() bool {
		tr.cache.mu.Lock()
		defer tr.cache.mu.Unlock()
		return !tr.cache.running
	})
}

func TestConnectionsExpire(t *testing.T) {
	gone := make(chan bool, 1)
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		answering(okEmpty)(n, c, r)
		gone <- true
	})
	get(t, provisioned(t, &Transport{KeepaliveTimeout: 5e7}), s.Addr())
	select {
	case <-gone:
	case <-time.After(3 * time.Second):
		t.Error("still open after 3 s, want 50 ms")
	}
}

func TestARemovedServerLosesItsConnections(t *testing.T) {
	hold := make(chan bool)
	s := rawTCP(t, func(n int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if req.Method == "PUT" {
				<-hold
			}
			_, _ = io.WriteString(c, okEmpty)
		}
	})
	other := rawTCP(t, answering(okEmpty))
	store := newStore(t)
	tr := provisioned(t, new(Transport))
	if err := tr.Bind(store, exchange.Keepalive{}); err != nil {
		t.Fatal(err)
	}
	get(t, tr, s.Addr())
	get(t, tr, other.Addr())
	done := make(chan error)
	go func() {
		res, err := tr.RoundTrip(request(t, "PUT", s.Addr(), nil))
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	eventually(t, "the request has the connection", func() bool { return idleConns(tr) == 1 })
	get(t, tr, s.Addr())
	if n := idleConns(tr); n != 2 {
		t.Fatalf("%d idle, want 2", n)
	}
	store.remove(s.Addr().String())
	if n := idleConns(tr); n != 1 {
		t.Errorf("%d idle after the removal, want 1", n)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Errorf("a request in flight failed: %v", err)
	}
	if n := idleConns(tr); n != 1 {
		t.Errorf("%d idle after the last request, want 1", n)
	}
	get(t, tr, s.Addr())
	if n := idleConns(tr); n != 2 {
		t.Errorf("%d idle when the server is back, want 2", n)
	}
}

func TestSettingsOfTheHandlerComeBeforeTheGroups(t *testing.T) {
	seven, eight := 7, 8
	group := exchange.Keepalive{Connections: &seven, Requests: 2, Time: time.Minute, Timeout: time.Second}
	for _, tt := range []struct {
		name   string
		tr     *Transport
		want   limits
		shared bool
	}{
		{"the group's", new(Transport), limits{7, 2, time.Minute, time.Second}, true},
		{"some", &Transport{KeepaliveRequests: 9}, limits{7, 9, time.Minute, time.Second}, true},
		{"all", &Transport{Keepalive: &eight, KeepaliveRequests: 9, KeepaliveTime: 2, KeepaliveTimeout: 3}, limits{8, 9, 2, 3}, true},
		{"none kept", &Transport{Keepalive: new(int)}, limits{0, 2, time.Minute, time.Second}, true},
		{"local", &Transport{Keepalive: &seven, KeepaliveLocal: true}, limits{7, 2, time.Minute, time.Second}, false},
		{"PROXY protocol", &Transport{ProxyProtocol: "v2"}, limits{0, 2, time.Minute, time.Second}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newStore(t)
			tr, second := provisioned(t, tt.tr), provisioned(t, new(Transport))
			for _, tr := range []*Transport{tr, second} {
				if err := tr.Bind(store, group); err != nil {
					t.Fatal(err)
				}
			}
			if tr.limits != tt.want {
				t.Errorf("limits %+v, want %+v", tr.limits, tt.want)
			}
			if got := tr.plain == second.plain; got != tt.shared {
				t.Errorf("shared %v, want %v", got, tt.shared)
			}
		})
	}
}

func TestSettingsOfConnectionsThatTheGroupDoesNotKeepAreRefused(t *testing.T) {
	group := exchange.Keepalive{Connections: new(int)}
	five := 5
	for _, tt := range []struct {
		tr   *Transport
		want string
	}{
		{new(Transport), ""},
		{&Transport{Keepalive: &five, KeepaliveTime: 1}, ""},
		{&Transport{KeepaliveTime: 1}, "keepalive_time does nothing beside the group's keepalive off"},
		{&Transport{KeepaliveRequests: 1}, "keepalive_requests does nothing beside the group's keepalive off"},
	} {
		err := provisioned(t, tt.tr).Bind(newStore(t), group)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Bind() = %v, want %q", err, tt.want)
		}
	}
}

func TestCleanupEndsLocalConnectionsAndLeavesSharedOnes(t *testing.T) {
	s := rawTCP(t, answering(okEmpty))
	store, n := newStore(t), 8
	newBound := func(k exchange.Keepalive) *Transport {
		tr := provisioned(t, new(Transport))
		if err := tr.Bind(store, k); err != nil {
			t.Fatal(err)
		}
		return tr
	}
	local := newBound(exchange.Keepalive{})
	shared := newBound(exchange.Keepalive{Connections: &n})
	next := newBound(exchange.Keepalive{Connections: &n}) // the next configuration's
	get(t, local, s.Addr())
	get(t, shared, s.Addr())
	if got := idleConns(next); got != 2 {
		t.Fatalf("%d idle, want 2", got)
	}
	for range 2 { // Cleanup may come twice
		_ = local.Cleanup()
		_ = shared.Cleanup()
	}
	if got := idleConns(next); got != 1 {
		t.Errorf("%d idle after Cleanup, want the shared one", got)
	}
	// Old handlers still work, but keep nothing of their own.
	get(t, local, s.Addr())
	if got := idleConns(next); got != 1 {
		t.Errorf("%d idle after a late request, want 1", got)
	}
	a := new(exchange.Attempt)
	res, err := next.Exchange(request(t, "GET", s.Addr(), nil), a)
	if err != nil || !a.Reused {
		t.Fatalf("Exchange() = %v, reused %v, want the shared connection", err, a.Reused)
	}
	res.Body.Close()
}

func TestFailuresToConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	elsewhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	for _, tt := range []struct {
		name string
		tr   *Transport
		to   net.Addr
		want exchange.Kind
	}{
		{"refused", new(Transport), l.Addr(), exchange.Failed},
		{"no such socket", new(Transport), &net.UnixAddr{Net: "unix", Name: t.TempDir() + "/none"}, exchange.Failed},
		{"no such local address", &Transport{BindAddress: "192.0.2.77"}, elsewhere, exchange.Local},
		{"not a network for HTTP", new(Transport), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}, exchange.Local},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := provisioned(t, tt.tr)
			_, err := tr.Exchange(request(t, "POST", tt.to, strings.NewReader("x")), new(exchange.Attempt))
			var e *exchange.Error
			if !errors.As(err, &e) || e.Kind != tt.want || e.Sent || e.Stale {
				t.Errorf("Exchange() = %+v, want %v", err, tt.want)
			}
		})
	}
	t.Run("as a dial error without a wrapper", func(t *testing.T) {
		_, err := provisioned(t, new(Transport)).RoundTrip(request(t, "GET", l.Addr(), nil))
		if !isDialError(err) {
			t.Errorf("RoundTrip() = %T %v, want a reverseproxy.DialError", err, err)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		s := rawTCP(t, func(_ int, c net.Conn, _ *bufio.Reader) { _, _ = io.Copy(io.Discard, c) })
		tr := provisioned(t, tlsTransport(&Transport{ConnectTimeout: 1e8}))
		_, err := tr.Exchange(request(t, "GET", s.Addr(), nil), new(exchange.Attempt))
		var e *exchange.Error
		if !errors.As(err, &e) || e.Kind != exchange.TimedOut || e.Op != "tls handshake" || !e.Timeout() {
			t.Errorf("Exchange() = %+v, want a timeout of the handshake", err)
		}
	})
}

func TestUnixSockets(t *testing.T) {
	s := listen(t, "unix", t.TempDir()+"/s", func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.Host), req.Host)
		}
	})
	tr := provisioned(t, new(Transport))
	for range 3 {
		req := request(t, "GET", s.Addr(), nil)
		req.Host = ""
		if got, _ := exchangeOnce(t, tr, req); got.Body != "localhost" {
			t.Errorf("got %+v, want the host localhost", got)
		}
	}
	want := exchange.ConnStats{Address: "unix/" + s.Addr().String(), Idle: 1, Created: 1, Reused: 2}
	if got := tr.ConnStats(); len(got) != 1 || got[0] != want {
		t.Errorf("ConnStats() = %+v, want %+v", got, want)
	}
	tr.cache.remove("unix/" + s.Addr().String())
	if n := idleConns(tr); n != 0 {
		t.Errorf("%d idle after the removal, want 0", n)
	}
}

// unreadBody notices when it is read.
type unreadBody struct {
	io.Reader
	read atomic.Bool
}

func (b *unreadBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.Reader.Read(p)
}

func TestARefusedConnectionLeavesTheBodyWhole(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	tr := provisioned(t, new(Transport))
	for _, size := range []int{1, 5, smallBody, smallBody + 1, 1 << 20} {
		body := &unreadBody{Reader: strings.NewReader(strings.Repeat("x", size))}
		req := request(t, http.MethodPost, ln.Addr(), body)
		req.ContentLength = int64(size)
		if _, err := tr.Exchange(req, new(exchange.Attempt)); err == nil {
			t.Errorf("%d bytes: Exchange() gives no error, want one", size)
		}
		if body.read.Load() {
			t.Errorf("%d bytes: the body was read, want it whole for the next server", size)
		}
	}
}
