// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// startHTTP2 serves handler over HTTP/2 only: without TLS if config is nil.
func startHTTP2(t *testing.T, config *tls.Config, handler http.HandlerFunc) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetHTTP2(config != nil)
	protocols.SetUnencryptedHTTP2(config == nil)
	s := &http.Server{Handler: handler, Protocols: &protocols, TLSConfig: config.Clone(), ReadHeaderTimeout: time.Minute}
	go func() {
		if config == nil {
			_ = s.Serve(ln)
		} else {
			_ = s.ServeTLS(ln, "", "")
		}
	}()
	t.Cleanup(func() { s.Close() })
	return ln.Addr().String()
}

// echo answers with the protocol and the body, and a trailer behind it.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "Grpc-Status")
	w.Header().Set("X-Proto", r.Proto)
	w.Header().Set("X-Te", r.Header.Get("Te"))
	if r.URL.Path == "/missing" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.Copy(w, r.Body)
	w.Header().Set("Grpc-Status", "0")
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
}

func TestH2CAndHTTP2OverTLSBackendsBalanceAndFailOver(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("127.0.0.1")
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	plain := startHTTP2(t, nil, echo)
	p := serve(t, group("plain", testnet.RefusedAddr(t), plain)+group("alone", plain)+
		group("tls", testnet.RefusedAddr(t), startHTTP2(t, config, echo)), fmt.Sprintf(`
	proxy_pass /plain h2c://plain
	proxy_pass /missing h2c://alone {
		next_upstream http_404
	}
	proxy_pass /tls https://tls {
		http_version 2
		tls_trust_pool file %s
	}`, ca.file))
	for _, target := range []string{"/plain", "/tls"} {
		for i := range 3 {
			// A body of which nothing was sent may go to the next server.
			res := p.post(target, []byte("hello"))
			if res.Status != 200 || res.Get("X-Proto") != "HTTP/2.0" || res.Text() != "hello" {
				t.Errorf("%s: %d over %q, body %q", target, res.Status, res.Get("X-Proto"), res.Text())
			}
			_, status := p.tries(target)
			if want := "502, 200"; i == 0 && status != want {
				t.Errorf("%s: tries %q, want %q", target, status, want)
			}
		}
	}
	if res := p.get("/missing"); res.Status != 404 {
		t.Errorf("status %d, want the only server's own 404", res.Status)
	}
	for _, g := range []string{"plain", "tls"} {
		if s := p.servers(g); s[0].State.State != "unhealthy" || s[1].State.Failures != 0 {
			t.Errorf("group %s: %+v", g, s)
		}
	}
	p.waitConns(0)
}

// h2cClient speaks HTTP/2 without TLS.
func h2cClient(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func TestAGRPCLikeExchangeStreamsBothWaysAndEndsInTrailers(t *testing.T) {
	t.Parallel()
	backend := startHTTP2(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Te", r.Header.Get("Te"))
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		buf := make([]byte, 1024)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				_, _ = w.Write(bytes.ToUpper(buf[:n]))
				_ = rc.Flush()
			}
			if err != nil {
				break
			}
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
	})
	p := start(t, "{\n\tdebug\n"+group("app", backend)+`
		servers {
			protocols h1 h2c
		}
	}
	http://:{{port "front"}} {
		bind 127.0.0.1
		log
		proxy_pass h2c://app
	}`)

	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.URL("front")+"/svc/Method", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	go func() { _, _ = io.WriteString(send, "one") }()
	res, err := h2cClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 3)
	for _, word := range []string{"one", "two"} {
		if word != "one" { // only now: the answer to the first has come
			if _, err := io.WriteString(send, word); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != string(bytes.ToUpper([]byte(word))) {
			t.Fatalf("answer to %q: %q, %v", word, buf, err)
		}
	}
	if n := p.conns(); n != 1 {
		t.Errorf("%d in flight while the stream is open, want 1", n)
	}
	send.Close()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
	if s, m := res.Trailer.Get("Grpc-Status"), res.Trailer.Get("Grpc-Message"); s != "0" || m != "fine" {
		t.Errorf("trailers %v, want Grpc-Status 0 and Grpc-Message fine", res.Trailer)
	}
	if te := res.Header.Get("X-Te"); te != "trailers" {
		t.Errorf("the backend got Te: %q, want trailers", te)
	}
	p.waitConns(0)
}

func TestAClientThatLeavesResetsTheStreamToAnHTTP2Backend(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	backend := startHTTP2(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})
	serve(t, group("app", backend), "\tproxy_pass h2c://app").leaveAfter(entered)
}

// leaveAfter is a client that asks, and leaves when the server has entered; the
// slot is given back.
func (p *proxy) leaveAfter(entered <-chan struct{}) {
	p.t.Helper()
	c := p.dial()
	if err := c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		p.t.Fatal(err)
	}
	<-entered
	p.waitConns(1)
	c.Close()
	p.waitConns(0)
}
