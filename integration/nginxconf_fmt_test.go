// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf"
)

// asPrinted runs a configuration on nginx, and on Caddy as the Caddyfile that is
// printed of it, and compares what f sees.
func asPrinted(t *testing.T, text string, f func(front, other string) []string) {
	t.Helper()
	testnet.Need(t, "nginx")
	dir := t.TempDir()
	text = "# caddy-upstream: nginx 1.22\nevents {}\n" + text
	n := testnet.StartNginx(t, strings.NewReplacer("FRONT", `{{addr "front"}}`, "OTHER", `{{addr "other"}}`).Replace(text), nil)
	want := f(n.Addr("front"), n.Addr("other"))
	front, other := testnet.Reserve(t).Addr(), testnet.Reserve(t).Addr()
	printed, err := nginxconf.Caddyfile([]byte(strings.NewReplacer("FRONT", front, "OTHER", other).Replace(text)), filepath.Join(dir, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	testnet.StartCaddy(t, printed, nil)
	if diff := cmp.Diff(want, f(front, other)); diff != "" {
		t.Errorf("nginx - caddy +\n%s\n%s", diff, printed)
	}
}

// told is what a client is told, as far as a Caddyfile says it: redirects and
// errors have no pages there.
func told(addr string, res testnet.Response, err error) string {
	text := res.Get("Content-Type") + " " + res.Text()
	if res.Status >= 300 {
		text = ""
	}
	_, port, _ := strings.Cut(addr, ":")
	return strings.ReplaceAll(fmt.Sprint(res.Status, " ", res.Get("Location"), " ", text, err), port, "PORT")
}

func TestAPrintedCaddyfileServesAsNginxDoes(t *testing.T) {
	t.Parallel()
	backend := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		return testnet.Answer{Body: fmt.Sprintf("%s %s real=%s", r.Target(), strings.Split(r.Get("Host"), ":")[0], r.Get("X-Real-IP")), Header: []string{"Content-Type: text/x"}}
	})
	_, port, _ := strings.Cut(backend.Addr(), ":")
	conf := `http { access_log off; upstream app { server ` + backend.Addr() + `; }
	server { listen FRONT default_server; server_name one.example;
		proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr;
		location / { proxy_pass http://app; }
		location /api/ { proxy_pass http://app; }
		location = /exact { return 200 exact; }
		location /gone { return 410; }
		location /to { return 301 https://$host$request_uri; }
		location /args { return 302 /new$is_args$args; }
		location /moved { rewrite ^ /other permanent; }
		location /dropped { rewrite ^(.*)$ https://other.example/x? redirect; }
		location /inside { rewrite ^ /changed break; proxy_pass http://app; }
		location /inside/dropped { rewrite ^ /changed? break; proxy_pass http://app; }
	}
	server { listen FRONT; server_name two.example www.two.example; location / { proxy_pass http://127.0.0.1:` + port + `; } location /two { return 200 two; } }
	server { listen OTHER; return 204; }
	server { listen FRONT; server_name three.example; return 307 http://one.example; }
}
`
	asPrinted(t, conf, func(front, _ string) []string {
		var out []string
		for _, host := range []string{"one.example", "two.example", "www.two.example", "three.example", "unknown.example"} {
			for _, target := range []string{"/", "/x?y=z", "/api", "/api?a=b", "/api/v", "/exact", "/exact/not", "/gone", "/to/x?a=b", "/args?a=b", "/args", "/moved/x?a=b", "/dropped?a=b", "/inside?a=b", "/inside/dropped?a=b", "/two"} {
				c, err := testnet.Dial(front)
				if err != nil {
					t.Fatal(err)
				}
				res, err := c.Do("GET", target, []string{"Host: " + host + front[strings.IndexByte(front, ':'):], "Connection: close"}, nil)
				out = append(out, host+target+": "+told(front, res, err))
				c.Close()
			}
		}
		return out
	})
}

func TestAPrintedCaddyfileTalksTLSAsNginxDoes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server, _, _ := ca.issue("app.example")
	_, oneCert, oneKey := ca.issue("one.example")
	_, twoCert, twoKey := ca.issue("two.example")
	client, clientCert, clientKey := ca.issue("client.example")
	revoked, _, _ := ca.issue("revoked.example")
	list := filepath.Join(t.TempDir(), "crl.pem")
	writeFile(t, list, ca.revoke(false, revoked))
	backend := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()})
	conf := fmt.Sprintf(`http { access_log off; proxy_ssl_session_reuse off; upstream app.example { server %s; }
	server { listen FRONT ssl http2; server_name one.example; ssl_certificate %s; ssl_certificate_key %s;
		location / { proxy_pass https://app.example; proxy_ssl_verify on; proxy_ssl_trusted_certificate %[4]s; proxy_ssl_crl %[5]s; proxy_ssl_certificate %s; proxy_ssl_certificate_key %s; }
		location /no { proxy_pass https://app.example; } }
	server { listen FRONT ssl; server_name two.example; ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2; return 200 two; }
}
stream { upstream a { server %[1]s; } server { listen OTHER ssl; ssl_certificate %[2]s; ssl_certificate_key %[3]s; ssl_verify_client on; ssl_client_certificate %[4]s; ssl_crl %[5]s; return "$ssl_client_s_dn $ssl_client_verify"; } }
`, backend.Addr(), oneCert, oneKey, ca.file, list, clientCert, clientKey, twoCert, twoKey)
	asPrinted(t, conf, func(front, other string) []string {
		var out []string
		for _, name := range []string{"one.example", "two.example", "unknown.example", ""} {
			for _, path := range []string{"/", "/no"} {
				c, err := testnet.DialTLS(front, &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"http/1.1"}})
				if err != nil {
					t.Fatal(err)
				}
				state := c.Conn.(*tls.Conn).ConnectionState()
				res, err := c.Do("GET", path, []string{"Host: " + name, "Connection: close"}, nil)
				out = append(out, fmt.Sprint(name, path, state.PeerCertificates[0].DNSNames, tls.VersionName(state.Version), res.Status, res.Text() == "secret", err))
				c.Close()
			}
		}
		h2 := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "one.example"}}}
		res, err := h2.Get("https://" + front + "/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		h2.CloseIdleConnections()
		out = append(out, fmt.Sprint(res.Proto, res.StatusCode))
		for i, cert := range []*tls.Certificate{nil, &client, &revoked} {
			text := ""
			config := &tls.Config{InsecureSkipVerify: true}
			if cert != nil {
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
			}
			if c, err := testnet.DialTLS(other, config); err == nil {
				buf := make([]byte, 100)
				n, _ := c.Conn.Read(buf)
				text = string(buf[:n])
				c.Close()
			}
			out = append(out, fmt.Sprint(i, text))
		}
		return out
	})
}
