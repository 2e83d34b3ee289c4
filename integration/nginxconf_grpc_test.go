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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// grpcServer is a server of gRPC's form over HTTP/2: it answers each message in
// upper case as soon as it has come, and ends with trailers. It remembers what
// it was asked for.
type grpcServer struct {
	addr string

	mu    sync.Mutex
	asked []string
}

func newGRPCServer(t *testing.T, name string, config *tls.Config) *grpcServer {
	s := &grpcServer{}
	s.addr = startHTTP2(t, config, func(w http.ResponseWriter, r *http.Request) {
		s.remember(r)
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("X-Name", name)
		h.Set("X-Secret", "s")
		switch r.URL.Path {
		case "/s.S/Silent":
			<-r.Context().Done()
			return
		case "/a.A/Busy":
			if name == "one" {
				_, _ = io.Copy(io.Discard, r.Body) // which cannot be sent again then
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
		case "/a.A/Refuse": // trailers only
			h.Set("Grpc-Status", "7")
			h.Set("Grpc-Message", "no%20entry")
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
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
		h.Set(http.TrailerPrefix+"Grpc-Status", "0")
		h.Set(http.TrailerPrefix+"Grpc-Message", "fine")
	})
	return s
}

func (s *grpcServer) remember(r *http.Request) {
	var fields []string
	for name, v := range r.Header {
		if name == "Host" {
			continue // what nginx sends instead of :authority where Host is set; it is in r.Host
		}
		fields = append(fields, name+"="+strings.Join(v, ","))
	}
	slices.Sort(fields)
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", fields))
	s.mu.Unlock()
}

// take returns what the server was asked for since the last time.
func (s *grpcServer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.asked, " ; ")
	s.asked = nil
	return out
}

func TestGRPCCallsPassAsOnNginx(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("secure.example")
	one, two := newGRPCServer(t, "one", nil), newGRPCServer(t, "two", nil)
	secure := newGRPCServer(t, "secure", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	servers := []*grpcServer{one, two, secure}
	conf := `http { access_log off;
	upstream app { server ` + one.addr + ` max_fails=0; server ` + two.addr + ` max_fails=0; }
	upstream half { server ` + testnet.RefusedAddr(t) + `; server ` + one.addr + `; }
	server { listen FRONT http2; listen OTHER;
		grpc_set_header X-Outer $host;
		grpc_hide_header X-Secret;
		location /a.A/ { grpc_pass grpc://app; grpc_next_upstream error timeout http_503 non_idempotent; }
		location /s.S/ { grpc_pass grpc://app; grpc_read_timeout 300ms; }
		location /b.B/ { grpc_pass half; }
		location /c.C/ { grpc_pass grpcs://` + secure.addr + `; grpc_set_header Host secure.example; grpc_set_header X-Inner $request_uri;
			grpc_ssl_verify on; grpc_ssl_name secure.example; grpc_ssl_server_name on; grpc_ssl_trusted_certificate ` + ca.file + `; }
		location /d.D/ { grpc_pass ` + testnet.RefusedAddr(t) + `; error_page 502 = @down; }
		location /e.E/ { grpc_pass ` + testnet.RefusedAddr(t) + `; }
		location @down { add_header grpc-status 14; add_header content-type application/grpc; return 204; }
	} }
`
	onBoth(t, conf, func(front, _ string) []string {
		client := h2cClient(t)
		var out []string
		for _, call := range []string{"/a.A/Say", "/a.A/Say?x=%20y", "/a.A/Busy", "/a.A/Busy", "/a.A/Refuse", "/s.S/Silent", "/b.B/Say", "/b.B/Say", "/c.C/Say", "/d.D/Say", "/e.E/Say"} {
			text := grpcCall(t, client, front, call)
			for _, s := range servers {
				text += "\n\t" + s.take()
			}
			for i, s := range append(servers, &grpcServer{addr: front}) {
				_, port, _ := net.SplitHostPort(s.addr)
				text = strings.ReplaceAll(text, port, fmt.Sprint("PORT", i))
			}
			out = append(out, text)
		}
		out = append(out, grpcStream(t, client, front))
		one.take()
		return out
	})
}

// grpcCall makes one call with one message.
func grpcCall(t *testing.T, client *http.Client, front, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+front+path, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"1S"}, "X-Meta": {"a", "b"}, "User-Agent": {"grpc-go/1"}}
	req.Header["Accept-Encoding"] = []string{"identity"}
	res, err := client.Do(req)
	if err != nil {
		return path + ": " + err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if res.Header.Get("Content-Type") == "text/html" {
		body = nil
	}
	return fmt.Sprintf("%s: %d %q %v name %q secret %q status %q trailer %v", path, res.StatusCode, body, err,
		res.Header.Get("X-Name"), res.Header.Get("X-Secret"), res.Header.Get("Grpc-Status"), res.Trailer)
}

// grpcStream sends a message only when the answer to the one before has come.
func grpcStream(t *testing.T, client *http.Client, front string) string {
	t.Helper()
	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+front+"/b.B/Chat", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	go func() { _, _ = io.WriteString(send, "one") }()
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text := ""
	for _, next := range []string{"two", "six", ""} {
		buf := make([]byte, 3)
		if _, err := io.ReadFull(res.Body, buf); err != nil {
			return text + err.Error()
		}
		text += string(buf) + " "
		if next != "" {
			_, _ = io.WriteString(send, next)
		}
	}
	send.Close()
	_, err = io.ReadAll(res.Body)
	return fmt.Sprint(text, err, res.Trailer)
}
