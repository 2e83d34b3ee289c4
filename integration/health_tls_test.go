// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// secured is a backend over TLS, with a certificate of ca for a name.
func secured(t *testing.T, ca *authority, name string) *testnet.Backend {
	t.Helper()
	cert, _, _ := ca.issue(name)
	return tlsBackend(t, &tls.Config{Certificates: []tls.Certificate{cert}})
}

// checked reports whether a health check of ours came to a backend.
func checked(b *testnet.Backend) bool {
	for _, r := range b.Requests() {
		if r.Get("User-Agent") == "caddy-upstream (health check)" {
			return true
		}
	}
	return false
}

func TestChecksTalkTLSAsTheHandlersOfTheirGroupDo(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	grouped := func(line string) string {
		return group("app", line+" id=s", "health_check uri=/up interval=200ms timeout=30s")
	}
	for name, front := range map[string]func() (*testnet.Backend, string){
		"proxy_pass": func() (*testnet.Backend, string) {
			b := secured(t, ca, "app.test")
			return b, config(grouped(b.Addr()), fmt.Sprintf("\tproxy_pass https://app {\n\t\ttls_trust_pool file %s\n\t\ttls_server_name app.test\n\t}", ca.file))
		},
		"http transport": func() (*testnet.Backend, string) {
			b := secured(t, ca, "app.test")
			return b, config(grouped(b.Addr()), fmt.Sprintf("\treverse_proxy {\n\t\tlb_policy upstream app\n\t\ttransport http {\n\t\t\ttls_trust_pool file %s\n\t\t\ttls_server_name app.test\n\t\t}\n\t}", ca.file))
		},
		"http transport in next_upstream": func() (*testnet.Backend, string) {
			b := secured(t, ca, "127.0.0.1")
			return b, config(grouped(b.Addr()), fmt.Sprintf("\treverse_proxy {\n\t\tlb_policy upstream app\n\t\ttransport next_upstream {\n\t\t\ttransport http {\n\t\t\t\ttls_trust_pool file %s\n\t\t\t}\n\t\t}\n\t}", ca.file))
		},
		"dynamic upstream": func() (*testnet.Backend, string) {
			b := secured(t, ca, "127.0.0.1")
			return b, config(grouped(b.Addr()), fmt.Sprintf("\treverse_proxy {\n\t\tdynamic upstream app\n\t\ttransport http {\n\t\t\ttls_trust_pool file %s\n\t\t}\n\t}", ca.file))
		},
		"stream": func() (*testnet.Backend, string) {
			b := secured(t, ca, "app.test")
			return b, config(grouped(b.Addr())+fmt.Sprintf("\tstream {\n\t\tserver 127.0.0.1:{{port \"s\"}} {\n\t\t\tproxy_pass app {\n\t\t\t\tssl_trusted_ca_certs %s\n\t\t\t\tssl_name app.test\n\t\t\t}\n\t\t}\n\t}\n", ca.file), "\trespond 204")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, text := front()
			p := start(t, text)
			testnet.Eventually(t, 30*time.Second, "a check over TLS", func() bool { return checked(b) })
			p.waitState("s", "up")
			if n := len(p.Logs("server unhealthy")); n > 0 {
				t.Errorf("the server was unhealthy %d times, want never", n)
			}
		})
	}
}

func TestACheckFollowsItsHandlersOverReloads(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	b := secured(t, ca, "app.test")
	text := func(site string) string {
		return config(group("app", b.Addr()+" id=s", "health_check interval=200ms timeout=30s"), site)
	}
	trusting := func(a *authority) string {
		return text(fmt.Sprintf("\tproxy_pass https://app {\n\t\ttls_trust_pool file %s\n\t\ttls_server_name app.test\n\t}", a.file))
	}
	reason := func(p *proxy) string {
		s := p.waitState("s", "unhealthy")
		if len(s.Checks) == 0 {
			return ""
		}
		return s.Checks[0].Reason
	}
	p := start(t, trusting(ca))
	testnet.Eventually(t, 30*time.Second, "a check over TLS", func() bool { return checked(b) })
	p.waitState("s", "up")
	// The group is the same in all that follow.
	p.MustReload(trusting(stranger), nil)
	if got := reason(p); !strings.Contains(got, "unknown authority") {
		t.Errorf("another authority is trusted: %q", got)
	}
	p.MustReload(trusting(ca), nil)
	p.waitState("s", "up")
	p.MustReload(text("\tproxy_pass app"), nil)
	if got := reason(p); got == "" || strings.Contains(got, "tls") {
		t.Errorf("without TLS: %q, want an answer that is not HTTP", got)
	}
	p.MustReload(trusting(ca), nil)
	p.waitState("s", "up")
	// What a file holds changes, and no setting does.
	pem, err := os.ReadFile(stranger.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca.file, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	p.MustReload(strings.Replace(trusting(ca), "proxy_pass", "header X-Load 2\n\tproxy_pass", 1), nil)
	if got := reason(p); !strings.Contains(got, "unknown authority") {
		t.Errorf("with another authority in the file: %q", got)
	}
}

func TestHandlersThatDifferInTLSMakeTheCheckSayWhatItDoes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	b := secured(t, ca, "app.test")
	plain := testnet.NewBackend(t, named("plain"))
	_, plainPort, _ := strings.Cut(plain.Addr(), ":")
	text := func(check string) string {
		return config(group("app", b.Addr()+" id=s", check+" interval=200ms timeout=30s"), fmt.Sprintf(`
	proxy_pass /a https://app {
		tls_trust_pool file %s
		tls_server_name app.test
	}
	proxy_pass /b https://app {
		tls_insecure_skip_verify
	}`, ca.file))
	}
	for _, check := range []string{"health_check", "health_check tls", "health_check grpc"} {
		_, err := testnet.TryCaddy(t, text(check), nil)
		if err == nil || !strings.Contains(err.Error(), "group app: health check ") || !strings.Contains(err.Error(), "say in the check what it is to do") {
			t.Errorf("%s: %v, want the error that says what to do", check, err)
		}
	}
	p := start(t, text("health_check tls_server_name=app.test tls_trusted_ca_certs="+ca.file))
	testnet.Eventually(t, 30*time.Second, "a check over TLS", func() bool { return checked(b) })
	p.waitState("s", "up")
	if err := p.Reload(text("health_check"), nil); err == nil || !strings.Contains(err.Error(), "say in the check") {
		t.Errorf("reload: %v, want the error", err)
	}
	p.MustReload(text("health_check tls_off port="+plainPort), nil)
	testnet.Eventually(t, 30*time.Second, "a check without TLS", func() bool { return checked(plain) })
	p.waitState("s", "up")
	if got := p.get("/a").Status; got != 200 {
		t.Errorf("status %d over TLS, want 200", got)
	}
}
