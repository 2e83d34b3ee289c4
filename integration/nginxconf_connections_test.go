// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// countingConn counts what comes.
type countingConn struct {
	net.Conn
	n int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n += int64(n)
	return n, err
}

// Header fields of nginx and Caddy differ in length: what is logged is compared
// with what has come.
func TestBytesThatAreLoggedAreThoseThatHaveCome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "bytes.log") // of both, one after the other
	writeFile(t, log, "")
	writeFile(t, filepath.Join(dir, "file.txt"), strings.Repeat("x", 70_000))
	backend := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		if strings.Contains(r.Target(), "chunks") {
			return testnet.Answer{Header: []string{"Transfer-Encoding: chunked"}, Body: "1388\r\n" + strings.Repeat("y", 5000) + "\r\n0\r\n\r\n"}
		}
		return testnet.Answer{Body: strings.Repeat("y", 5000)}
	}).Addr()
	ca := newAuthority(t)
	_, cert, key := ca.issue("front.example")
	conf := `http { log_format bytes "$bytes_sent $connection_requests";
	server { listen FRONT; listen OTHER ssl; ssl_certificate ` + cert + `; ssl_certificate_key ` + key + `; access_log ` + log + ` bytes; root ` + dir + `;
		location /text { return 200 "some text"; } location /none { return 204; } location /moved { return 301 /else; } location /error { return 500; }
		location /proxy { proxy_http_version 1.1; proxy_pass http://` + backend + `; } } }
`
	requests := []string{"GET /text", "HEAD /text", "GET /none", "GET /moved", "GET /file.txt", "GET /proxy", "GET /proxy/chunks", "HEAD /proxy", "POST /proxy", "GET /error"}
	seen := 0
	onBoth(t, conf, func(front, secure string) []string {
		var out []string
		for _, addr := range []string{front, secure} {
			conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
			if err == nil && addr == secure {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			counted := &countingConn{Conn: conn}
			c := testnet.NewClient(counted)
			for _, line := range requests {
				before := counted.n
				method, target, _ := strings.Cut(line, " ")
				res, err := c.Do(method, target, []string{"Host: front.example"}, nil)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				var sent, number int64
				if _, err := fmt.Sscan(logLine(t, log, seen), &sent, &number); err != nil {
					t.Fatal(err)
				}
				seen++
				text := fmt.Sprintf("%s: %d, request %d", line, res.Status, number)
				if came := counted.n - before; sent != came {
					text += fmt.Sprintf(": %d bytes logged, but %d have come", sent, came)
				}
				out = append(out, text)
			}
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF { // after a 500
				out = append(out, fmt.Sprint("the connection is open: ", err))
			}
		}
		for _, line := range out {
			if strings.Contains(line, "but") {
				t.Error(line)
			}
		}
		return out
	})
}

func TestConnectionsToServersComeFromTheAddressThatIsGiven(t *testing.T) {
	t.Parallel()
	conf := `http { access_log off;
	server { listen FRONT; proxy_bind 127.0.0.5; location / { proxy_pass http://OTHER; } location /off { proxy_bind off; proxy_pass http://OTHER; } }
	server { listen OTHER; return 200 "$remote_addr"; } }
`
	onBoth(t, conf, func(front, _ string) []string {
		return []string{testnet.Get(t, "http://"+front+"/").Text(), testnet.Get(t, "http://"+front+"/off").Text()}
	})
}

func TestAResponseIsSlowedDownToItsLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file.txt"), strings.Repeat("x", 30_000))
	conf := `http { access_log off;
	server { listen FRONT; listen OTHER; root ` + dir + `;
		location /limited/ { alias ` + dir + `/; limit_rate 10k; }
		location /set/ { alias ` + dir + `/; set $limit_rate 10k; }
		location /proxied/ { proxy_pass http://OTHER/; proxy_limit_rate 10k; }
		location /after/ { alias ` + dir + `/; limit_rate 1; limit_rate_after 100k; } } }
`
	onBoth(t, conf, func(front, _ string) []string {
		var out []string
		for _, path := range []string{"/limited/", "/set/", "/proxied/", "/after/"} {
			start := time.Now()
			res := testnet.Get(t, "http://"+front+path+"file.txt")
			slow := time.Since(start) >= time.Second // at least two pauses of a second
			if path == "/after/" {                   // with its limit it would take eight hours
				slow = false
			}
			out = append(out, fmt.Sprint(path, len(res.Body), slow))
		}
		return out
	})
}

// distinguishedName has what is printed in a way of its own.
var distinguishedName = pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
	{Type: asn1.ObjectIdentifier{2, 5, 4, 6}, Value: "DE"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: `Some, "Org" + #1; <x>\`},
	{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "#unit "}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "käte"},
	{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte("kaete@example.org")}},
}}

func TestVariablesOfTLSAreThoseOfNginx(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	_, cert, key := ca.issue("front.example")
	client := func(a *authority) tls.Certificate {
		k := a.newKey()
		c := a.sign(&x509.Certificate{SerialNumber: big.NewInt(0x0abcdef), Subject: distinguishedName, KeyUsage: x509.KeyUsageDigitalSignature}, a.cert, k)
		return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: k}
	}
	own, strange := client(ca), client(foreign)
	text := "$ssl_protocol $ssl_cipher $ssl_curve $ssl_server_name $ssl_session_reused $ssl_client_verify\n$ssl_client_s_dn\n$ssl_client_i_dn\n$ssl_client_serial $ssl_client_fingerprint\n" +
		"$ssl_client_v_start $ssl_client_v_end $ssl_client_v_remain\n$ssl_client_raw_cert\n$ssl_client_escaped_cert\n$https $scheme $ssl_early_data"
	server := ` ssl_certificate ` + cert + `; ssl_certificate_key ` + key + `; ssl_client_certificate ` + ca.file + `; return 200 "` + text + `"; }
`
	conf := `http { access_log off;
	server { listen FRONT ssl; ssl_verify_client optional; ` + server + `
	server { listen OTHER ssl; ssl_verify_client optional_no_ca; ` + server + `}
`
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, ask := range []struct {
			addr string
			cert *tls.Certificate
			max  uint16
		}{{front, nil, tls.VersionTLS13}, {front, &own, tls.VersionTLS13}, {front, &own, tls.VersionTLS12}, {other, &strange, tls.VersionTLS13}} {
			config := &tls.Config{InsecureSkipVerify: true, ServerName: "front.example", MaxVersion: ask.max, NextProtos: []string{"http/1.1"},
				CurvePreferences: []tls.CurveID{tls.CurveP256}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
			if ask.cert != nil {
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return ask.cert, nil }
			}
			c, err := testnet.DialTLS(ask.addr, config)
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.Do("GET", "/", []string{"Host: front.example", "Connection: close"}, nil)
			// Go and OpenSSL prefer another suite of TLS 1.3
			body := strings.NewReplacer("TLS_AES_256_GCM_SHA384", "TLS_AES", "TLS_AES_128_GCM_SHA256", "TLS_AES").Replace(string(res.Body))
			out = append(out, fmt.Sprint(res.Status, body, err))
			c.Close()
		}
		return out
	})
}

func TestVariablesOfThePROXYHeaderAreThoseOfNginx(t *testing.T) {
	t.Parallel()
	text := `"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port|$remote_addr $remote_port $realip_remote_addr"`
	conf := `http { access_log off;
	server { listen FRONT proxy_protocol; real_ip_header proxy_protocol; return 200 ` + text + `; }
	server { listen OTHER proxy_protocol; set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol; return 200 ` + text + `; } }
`
	v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\x57\x08\xae"
	local := "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	onBoth(t, conf, func(front, other string) []string {
		var out []string
		for _, addr := range []string{front, other} {
			for _, header := range []string{"PROXY TCP4 192.0.2.7 192.0.2.8 1111 2222\r\n", "PROXY TCP6 2001:DB8::1 ::1 1 2\r\n", "PROXY UNKNOWN\r\n", v2, local, "PROXY nonsense\r\n", ""} {
				c, err := testnet.Dial(addr)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Send(header + "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				_ = c.Conn.SetReadDeadline(time.Now().Add(30 * time.Second))
				got, _ := io.ReadAll(c.Conn)
				_, body, _ := strings.Cut(string(got), "\r\n\r\n")
				_, port, _ := net.SplitHostPort(c.Conn.LocalAddr().String())
				out = append(out, fmt.Sprintf("%q: %q", header, strings.ReplaceAll(body, port, "PORT")))
				c.Close()
			}
		}
		return out
	})
}

// Chance has no order to compare: the shares are.
func TestMethodsOfChanceGiveTheSharesOfNginx(t *testing.T) {
	t.Parallel()
	conf := "http { access_log off;\n"
	methods := []string{"random", "random two", "random two least_conn"}
	var servers []string
	for i := range 3 {
		servers = append(servers, testnet.NewBackend(t, named(fmt.Sprint("b", i))).Addr())
	}
	locations := ""
	for i, m := range methods {
		conf += fmt.Sprintf("upstream m%d { %s; server %s weight=3; server %s; server %s weight=2; }\n", i, m, servers[0], servers[1], servers[2])
		locations += fmt.Sprintf(" location /%d { proxy_pass http://m%d; }", i, i)
	}
	conf += "server { listen FRONT; listen OTHER;" + locations + " } }\n"
	const n = 600
	var shares [][]float64
	onBoth(t, conf, func(front, _ string) []string {
		for i := range methods {
			counts := make([]float64, 3)
			c, err := testnet.Dial(front)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range n {
				res, err := c.Do("GET", fmt.Sprint("/", i), []string{"Host: x"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				counts[res.Text()[1]-'0'] += 1. / n
			}
			shares = append(shares, counts)
		}
		return nil
	})
	for i, m := range methods {
		for j := range servers {
			nginx, caddy := shares[i][j], shares[len(methods)+i][j]
			if math.Abs(nginx-caddy) > 0.15 { // five times the deviation of 600 draws
				t.Errorf("%s: server %d gets %.2f on nginx, %.2f on Caddy", m, j, nginx, caddy)
			}
		}
	}
}

func TestConnectionsOfClientsEndAfterTheRequestsThatAreConfigured(t *testing.T) {
	t.Parallel()
	backend := testnet.NewBackend(t, testnet.Answer{Body: "proxied"})
	onBoth(t, `http { access_log off; keepalive_requests 4;
	server { listen FRONT; keepalive_time 1h;
		location / { return 200 x; }
		location /two { keepalive_requests 2; proxy_pass http://`+backend.Addr()+`; }
		location /none { keepalive_timeout 0; return 404; }
		if ($arg_rules) { return 200 rules; } }
	server { listen OTHER; keepalive_time 1ms; keepalive_requests 1000000; location / { return 200 y; } } }
`, func(front, other string) []string {
		var out []string
		for _, path := range []string{"/", "/two", "/none", "/?rules=1"} {
			c, err := testnet.Dial(front)
			if err != nil {
				t.Fatal(err)
			}
			for range 6 {
				res, err := c.Do("GET", path, []string{"Host: x"}, nil)
				if err != nil {
					break
				}
				out = append(out, fmt.Sprint(path, res.Status, res.Get("Connection") == "close"))
			}
			c.Close()
		}
		c, err := testnet.Dial(other)
		if err != nil {
			t.Fatal(err)
		}
		testnet.Eventually(t, 30*time.Second, "a connection that is too old", func() bool {
			res, err := c.Do("GET", "/", []string{"Host: x"}, nil)
			return err == nil && res.Get("Connection") == "close"
		})
		c.Close()
		return out
	})
}
