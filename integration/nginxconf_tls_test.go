// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// onBoth runs a configuration on nginx and on Caddy and compares what f sees.
// FRONT and OTHER are addresses to listen on, DIR is the folder.
func onBoth(t *testing.T, text string, f func(front, other string) []string) {
	t.Helper()
	testnet.Need(t, "nginx")
	dir := t.TempDir()
	text = "# caddy-upstream: nginx 1.22\nevents {}\n" + strings.ReplaceAll(text, "DIR", dir)
	n := testnet.StartNginx(t, strings.NewReplacer("FRONT", `{{addr "front"}}`, "OTHER", `{{addr "other"}}`).Replace(text), nil)
	want := f(n.Addr("front"), n.Addr("other"))
	front, other := testnet.Reserve(t).Addr(), testnet.Reserve(t).Addr()
	startAdapted(t, strings.NewReplacer("FRONT", front, "OTHER", other).Replace(text), dir)
	if diff := cmp.Diff(want, f(front, other)); diff != "" {
		t.Errorf("nginx - caddy +\n%s\n%s", diff, text)
	}
}

func TestCertificatesAreChosenBySNIAsNginxDoes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	conf := "http {\n access_log off;\n"
	for i, name := range []string{"one.example", "two.example"} {
		_, cert, key := ca.issue(name)
		listen := "FRONT ssl"
		if i == 0 {
			listen += " http2"
		}
		conf += fmt.Sprintf(" server { listen %s; listen OTHER; server_name %s *.%s; ssl_certificate %s; ssl_certificate_key %s; return 200 \"%d $scheme $server_name $https $ssl_server_name\"; }\n",
			listen, name, name, cert, key, i)
	}
	onBoth(t, conf+"}\n", func(front, other string) []string {
		out := []string{testnet.Get(t, "http://"+other+"/", "Host: two.example").Text()}
		for _, name := range []string{"one.example", "two.example", "x.two.example", "other"} {
			c, err := testnet.DialTLS(front, &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"http/1.1"}})
			if err != nil {
				out = append(out, name+": "+err.Error())
				continue
			}
			cert := c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames
			res, err := c.Do("GET", "/", []string{"Host: " + name, "Connection: close"}, nil)
			out = append(out, fmt.Sprint(name, cert, res.Status, res.Text(), err))
			c.Close()
		}
		return out
	})
}

func TestCiphersAreThoseThatTheConfigurationNames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	_, cert, key := ca.issue("one.example")
	server := fmt.Sprintf(`ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2;
		ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256:!aNULL;`, cert, key)
	conf := "http {\n access_log off;\n server { listen FRONT ssl; " + server + " return 200 $ssl_cipher; }\n}\n" +
		"stream {\n server { listen OTHER ssl; " + server + " return $ssl_cipher; }\n}\n"
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, address := range []string{front, other} {
			for _, offered := range [][]uint16{
				{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
				{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384},
			} {
				c, err := testnet.DialTLS(address, &tls.Config{InsecureSkipVerify: true, ServerName: "one.example", MaxVersion: tls.VersionTLS12, CipherSuites: offered})
				if err != nil {
					out = append(out, "refused")
					continue
				}
				out = append(out, tls.CipherSuiteName(c.Conn.(*tls.Conn).ConnectionState().CipherSuite))
				c.Close()
			}
		}
		return out
	})
}

func TestHandshakesForOtherNamesAreRejectedAsConfigured(t *testing.T) {
	t.Parallel()
	ca, more := newAuthority(t), newAuthority(t)
	_, cert, key := ca.issue("one.example")
	clients := map[string]*tls.Certificate{"nobody": nil}
	for name, a := range map[string]*authority{"first": ca, "second": more, "stranger": newAuthority(t)} {
		c, _, _ := a.issue("client.example")
		clients[name] = &c
	}
	conf := fmt.Sprintf(`http { access_log off;
	server { listen FRONT ssl; listen OTHER ssl; ssl_reject_handshake on; }
	server { listen FRONT ssl; listen OTHER ssl; server_name one.example; ssl_certificate %s; ssl_certificate_key %s;
		ssl_verify_client optional_no_ca; ssl_client_certificate %s; ssl_trusted_certificate %s; return 200 "$ssl_client_verify"; } }
`, cert, key, ca.file, more.file)
	onBoth(t, conf, func(front, _ string) []string {
		var out []string
		for _, name := range []string{"one.example", "two.example", ""} {
			for _, who := range []string{"nobody", "first", "second", "stranger"} {
				config := &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"http/1.1"}}
				if c := clients[who]; c != nil {
					config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
				}
				c, err := testnet.DialTLS(front, config)
				if err != nil {
					out = append(out, name+" "+who+": rejected")
					continue
				}
				res, err := c.Do("GET", "/", []string{"Host: " + name, "Connection: close"}, nil)
				verdict, _, _ := strings.Cut(res.Text(), ":") // of its reason OpenSSL knows more
				out = append(out, fmt.Sprint(name, who, res.Status, verdict, err))
				c.Close()
			}
		}
		return out
	})
}

func TestServersBehindTLSAreVerifiedAsConfigured(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	cert, _, _ := ca.issue("app.example")
	backend := testnet.NewTCP(t, func(c net.Conn, _ int) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
		if conn.Handshake() == nil {
			_, _ = http.ReadRequest(bufferedConn(conn))
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		}
		_ = conn.Close()
	}).Addr()
	conf := `http { access_log off; upstream app.example { server ` + backend + `; }
	server { listen FRONT; listen OTHER;
		location /plain { proxy_pass https://app.example; }
		location /verified { proxy_pass https://app.example; proxy_ssl_verify on; proxy_ssl_trusted_certificate ` + ca.file + `; }
		location /foreign { proxy_pass https://app.example; proxy_ssl_verify on; proxy_ssl_trusted_certificate ` + foreign.file + `; }
		location /name { proxy_pass https://app.example; proxy_ssl_verify on; proxy_ssl_name other.example; proxy_ssl_trusted_certificate ` + ca.file + `; }
	} }
`
	onBoth(t, conf, func(front, _ string) []string {
		var out []string
		for _, path := range []string{"/plain", "/verified", "/foreign", "/name"} {
			res := testnet.Get(t, "http://"+front+path)
			out = append(out, fmt.Sprint(path, res.Status))
		}
		return out
	})
}

func TestThePROXYHeaderOfAListenerCountsAsRealIPSays(t *testing.T) {
	t.Parallel()
	conf := `http { access_log off;
	server { listen FRONT proxy_protocol; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol; return 200 "$remote_addr"; }
	server { listen OTHER proxy_protocol; return 200 "$remote_addr"; } }
`
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, addr := range []string{front, other} {
			c, err := testnet.Dial(addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Send("PROXY TCP4 192.0.2.7 192.0.2.8 1111 2222\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			res, err := c.Receive("GET")
			out = append(out, fmt.Sprint(res.Status, res.Text(), err))
			c.Close()
		}
		return out
	})
}

func TestAnUpgradedConnectionPassesBothWays(t *testing.T) {
	t.Parallel()
	backend := testnet.NewTCP(t, func(c net.Conn, _ int) {
		r := bufferedConn(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade") == "" {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nnot")
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := r.ReadString('\n')
		fmt.Fprint(c, strings.ToUpper(line))
	}).Addr()
	conf := `http { access_log off; map $http_upgrade $connection_upgrade { default upgrade; '' close; }
	server { listen FRONT; listen OTHER;
		location / { proxy_pass http://` + backend + `; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; }
		location /no { proxy_pass http://` + backend + `; proxy_http_version 1.1; }
	} }
`
	onBoth(t, conf, func(front, _ string) []string {
		var out []string
		for _, path := range []string{"/", "/no"} {
			c, err := testnet.Dial(front)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = c.Conn.SetDeadline(time.Now().Add(10 * time.Second))
			r := bufferedConn(c.Conn)
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			line := ""
			if res.StatusCode == http.StatusSwitchingProtocols {
				fmt.Fprint(c.Conn, "hello\n")
				line, _ = r.ReadString('\n')
			}
			out = append(out, fmt.Sprint(path, res.StatusCode, line))
			c.Close()
		}
		return out
	})
}

func TestTheCommandLineTakesAnNginxConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nginx.conf")
	writeFile(t, file, "events {}\nhttp { server { listen 127.0.0.1:0; } }\n")
	if _, stderr, err := testnet.Command(t, "adapt", "--config", file, "--adapter", "nginx-upstream"); err == nil || !strings.Contains(stderr, file+":2: listen:") {
		t.Errorf("adapt of a wrong file: %v\n%s", err, stderr)
	}
	writeFile(t, file, "events {}\nhttp { server { listen 127.0.0.1:8080; return 200; } }\n")
	if _, stderr, err := testnet.Command(t, "validate", "--config", file, "--adapter", "nginx-upstream"); err != nil {
		t.Errorf("validate: %v\n%s", err, stderr)
	}
}

func TestTheNameOfAServerBehindTLSMayBeAVariable(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, _, _ := ca.issue("one.example")
	answer := func(name string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n[" + fmt.Sprintf("%-13.13s", name) + "]"
	}
	backend := testnet.NewTCP(t, func(c net.Conn, _ int) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{one}, NextProtos: []string{"http/1.1"}})
		defer conn.Close()
		if conn.Handshake() == nil {
			_, _ = http.ReadRequest(bufferedConn(conn))
			fmt.Fprint(conn, answer(conn.ConnectionState().ServerName))
		}
	}).Addr()
	grpc := newGRPCServer(t, "g", &tls.Config{Certificates: []tls.Certificate{one}})
	conf := `http { access_log off; proxy_ssl_session_reuse off; grpc_ssl_session_reuse off; upstream g { server ` + grpc.addr + `; keepalive 1; }
	proxy_ssl_trusted_certificate ` + ca.file + `; grpc_ssl_trusted_certificate ` + ca.file + `;
	server { listen FRONT;
		location / { proxy_pass https://` + backend + `; proxy_ssl_server_name on; proxy_ssl_name $arg_name.example; }
		location /verify { proxy_pass https://` + backend + `; proxy_ssl_verify on; proxy_ssl_server_name on; proxy_ssl_name $arg_name.example; }
		location /g { grpc_pass grpcs://g; grpc_ssl_verify on; grpc_ssl_server_name on; grpc_ssl_name $arg_name.example; }
	} }
stream { map $remote_addr $name { default one.example; 127.0.0.2 two.example; }
	server { listen OTHER; proxy_pass ` + backend + `; proxy_ssl on; proxy_ssl_session_reuse off; proxy_ssl_server_name on; proxy_ssl_name $name; proxy_ssl_verify on; proxy_ssl_trusted_certificate ` + ca.file + `; } }
`
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, path := range []string{"/?name=one", "/?name=two", "/verify?name=two", "/verify?name=one", "/g?name=two", "/g?name=one"} {
			res := testnet.Get(t, "http://"+front+path)
			text := ""
			if res.Status == http.StatusOK {
				text = res.Text()
			}
			out = append(out, fmt.Sprint(path, res.Status, text))
		}
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.Dial("tcp", other)
			if err != nil {
				t.Fatal(err)
			}
			res, err := testnet.NewClient(c).Do("GET", "/", []string{"Host: x"}, nil)
			out = append(out, fmt.Sprint(from, res.Status, res.Text(), err == nil))
			c.Close()
		}
		return out
	})
}

func TestAStreamGoesToThePortThatAVariableSays(t *testing.T) {
	t.Parallel()
	backend := testnet.NewBackend(t, testnet.Answer{Body: "here"})
	_, port, _ := net.SplitHostPort(backend.Addr())
	conf := "stream { map $remote_addr $port { default " + port + "; 127.0.0.2 1; }\n" +
		" server { listen FRONT; proxy_pass 127.0.0.1:$port; }\n server { listen OTHER; return x; } }\n"
	onBoth(t, conf, func(front, _ string) []string {
		res, err := exchangeOnce(front, "GET", "/", nil, nil)
		return []string{fmt.Sprint(res.Status, res.Text(), err)}
	})
}

func TestSessionsWithServersAreResumedUnlessThatIsOff(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, _, _ := ca.issue("app.example")
	server := func() string {
		config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}} // has the keys of tickets
		return testnet.NewTCP(t, func(c net.Conn, _ int) {
			conn := tls.Server(c, config)
			defer conn.Close()
			if conn.Handshake() == nil {
				_, _ = http.ReadRequest(bufferedConn(conn))
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n%-5t", conn.ConnectionState().DidResume)
			}
		}).Addr()
	}
	for _, mode := range []string{"on", "off"} {
		conf := "http { access_log off; proxy_ssl_session_reuse " + mode + "; upstream u { server " + server() + "; }\n" +
			" server { listen FRONT; location / { proxy_pass https://u; } } }\n" +
			"stream { upstream u { server " + server() + "; } server { listen OTHER; proxy_pass u; proxy_ssl on; proxy_ssl_session_reuse " + mode + "; } }\n"
		onBoth(t, conf, func(front, other string) []string {
			var out []string
			for kind, addr := range map[string]string{"http": front, "stream": other} {
				resumed := false
				for range 5 { // nginx has a ticket for every other connection, or so
					resumed = testnet.Get(t, "http://"+addr+"/").Text() == "true" || resumed
				}
				if resumed != (mode == "on") {
					t.Errorf("proxy_ssl_session_reuse %s: resumed %t by the %s server %s", mode, resumed, kind, addr)
				}
			}
			return out
		})
	}
}
