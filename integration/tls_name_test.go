// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// A server's line has a name, and its connections go to the addresses that the
// name has: the certificate is for the name.
func TestACertificateIsForTheNameOnTheLine(t *testing.T) {
	t.Parallel()
	d := testnet.NewDNS(t)
	ca := newAuthority(t)
	cert, _, _ := ca.issue("app.test")
	b := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	_, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	d.Set("app.test", "60 A 127.0.0.1")
	d.Set("other.test", "60 A 127.0.0.1")
	d.Set("_app._tcp.svc.test", "60 SRV 1 1 "+port+" app.test.")
	d.Set("_other._tcp.svc.test", "60 SRV 1 1 "+port+" other.test.")
	lines := map[string]string{
		"right": "server app.test:" + port + " resolve", "wrong": "server other.test:" + port + " resolve",
		"service": "server svc.test resolve service=app", "wrong_service": "server svc.test resolve service=other",
	}
	var groups, site, servers string
	for name, line := range lines {
		groups += group(name, line, "resolver "+d.Addr())
		site += fmt.Sprintf("\tproxy_pass /%[1]s https://%[1]s {\n\t\ttls_trust_pool file %[2]s\n\t}\n", name, ca.file)
		servers += fmt.Sprintf("server %s {\n\t\t\tproxy_pass %s {\n\t\t\t\tssl\n\t\t\t\tssl_trusted_ca_certs %s\n\t\t\t}\n\t\t}\n\t\t", front("s-"+name), name, ca.file)
	}
	p := serve(t, groups+"\tstream {\n\t\t"+servers+"\n\t}\n", site)
	for name, status := range map[string]int{"right": 200, "wrong": 502, "service": 200, "wrong_service": 502} {
		p.waitServers(name, 1)
		if res := p.get("/" + name); res.Status != status {
			t.Errorf("/%s: status %d, want %d", name, res.Status, status)
		}
		c, err := net.Dial("tcp", p.Addr("s-"+name))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if got := line != ""; got != (status == 200) {
			t.Errorf("%s over stream: answer %q, want one: %t", name, line, status == 200)
		}
	}
}

// waitServers waits until a group has n servers with an address.
func (p *proxy) waitServers(group string, n int) {
	p.t.Helper()
	testnet.Eventually(p.t, 30*time.Second, fmt.Sprintf("%d servers in %s", n, group), func() bool {
		found := 0
		for _, s := range p.state(group).Servers {
			if s.State.State != "unresolved" && s.State.State != "removed" {
				found++
			}
		}
		return found == n
	})
}

// Caddy's own transport knows the address that is dialled and not the line, as in
// Caddy with a dynamic source of upstreams: there the name has to be said.
func TestOverCaddysTransportTheNameOfACertificateIsSaid(t *testing.T) {
	t.Parallel()
	d := testnet.NewDNS(t)
	ca := newAuthority(t)
	cert, _, _ := ca.issue("app.test")
	b := tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	_, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	d.Set("app.test", "60 A 127.0.0.1")
	const tlsOptions = "tls\n\t\ttls_trust_pool file %[1]s\n"
	p := serve(t, group("app", "server app.test:"+port+" resolve", "resolver "+d.Addr()), fmt.Sprintf(`
	reverse_proxy /judged {
		lb_policy upstream app
		transport next_upstream {
			transport http {
				`+tlsOptions+`
				tls_server_name app.test
			}
		}
	}
	reverse_proxy /observed {
		lb_policy upstream app
		transport http {
			`+tlsOptions+`
			tls_server_name app.test
		}
	}
	reverse_proxy /unsaid {
		lb_policy upstream app
		transport next_upstream {
			transport http {
				`+tlsOptions+`
			}
		}
	}`, ca.file))
	p.waitServers("app", 1)
	for path, want := range map[string]int{"/judged": 200, "/observed": 200, "/unsaid": 502} {
		if res := p.get(path); res.Status != want {
			t.Errorf("%s: status %d, want %d", path, res.Status, want)
		}
	}
}
