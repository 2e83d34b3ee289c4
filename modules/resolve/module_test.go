// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func TestTheResolverLineAdapts(t *testing.T) {
	tests := []struct{ line, want string }{
		{"resolver", `{}`},
		{"resolver 10.0.0.1", `{"addresses":["10.0.0.1"]}`},
		{"resolver 10.0.0.1:5353 ::1 [::1]:53", `{"addresses":["10.0.0.1:5353","::1","[::1]:53"]}`},
		{"resolver 10.0.0.1 valid=30s ipv6=off timeout=2s", `{"addresses":["10.0.0.1"],"valid":30000000000,"ipv6":"off","timeout":2000000000}`},
		{"resolver ipv6=on", `{"ipv6":"on"}`},
		{"resolver valid=0s", `valid: 0s is too short`},
		{"resolver valid=x", `valid: "x" is not a duration`},
		{"resolver timeout=-1s", `timeout: -1s is negative`},
		{"resolver ipv6=maybe", `ipv6: unexpected "maybe": expected on or off`},
		{"resolver dns.internal:53", `expected the IP address of a name server`},
		{"resolver dns.internal", `expected the IP address of a name server`},
		{"resolver 10.0.0.1:", `expected the IP address of a name server`},
		{"resolver 10.0.0.1:70000", `expected the IP address of a name server`},
		{"resolver color=blue", `unknown parameter "color=blue": expected ipv6=, timeout=, valid=`},
		{"resolver valid=1s valid=2s", `parameter "valid" given twice`},
		{"resolver 10.0.0.1 {\n x\n}", `unexpected block`},
	}
	for _, tt := range tests {
		d := new(DNS)
		err := d.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tt.line))
		got := fmt.Sprint(err)
		if err == nil {
			raw, _ := json.Marshal(d)
			got = string(raw)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.line, got, tt.want)
		}
	}
}

func TestProvisionRefusesWhatJSONCanSayAndNobodyCanDo(t *testing.T) {
	for _, tt := range []struct {
		dns  DNS
		want string
	}{
		{DNS{Valid: -1}, "negative"},
		{DNS{Timeout: -1}, "negative"},
		{DNS{IPv6: "no"}, "expected on or off"},
		{DNS{Addresses: []string{"name:53"}}, "expected the IP address"},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		err := tt.dns.Provision(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Provision(%+v) = %v, want an error with %q", tt.dns.Addresses, err, tt.want)
		}
	}
}

func TestLookupMakesServersOfRecords(t *testing.T) {
	server := testnet.NewDNS(t)
	server.Set("a.test", "60 A 10.0.0.1", "60 AAAA 2001:db8::1")
	server.Set("_http._tcp.a.test", "60 SRV 10 5 8001 a.test.", "60 SRV 20 0 8002 a.test.")
	server.Set("own.name.a.test", "60 SRV 10 5 8003 a.test.")
	d := provisioned(t, &DNS{Addresses: []string{server.Addr()}})
	for _, tt := range []struct {
		query upstream.Query
		want  string
	}{
		{upstream.Query{Host: "a.test", Port: 80}, "10.0.0.1:80 [2001:db8::1]:80"},
		{upstream.Query{Host: "a.test", Service: "http"}, "10.0.0.1:8001 a.test weight=5 [2001:db8::1]:8001 a.test weight=5 " +
			"10.0.0.1:8002 a.test weight=1 backup [2001:db8::1]:8002 a.test weight=1 backup"},
		{upstream.Query{Host: "a.test", Service: "_http._tcp"}, "10.0.0.1:8001 a.test weight=5 [2001:db8::1]:8001 a.test weight=5 " +
			"10.0.0.1:8002 a.test weight=1 backup [2001:db8::1]:8002 a.test weight=1 backup"},
		{upstream.Query{Host: "a.test", Service: "own.name"}, "10.0.0.1:8003 a.test weight=5 [2001:db8::1]:8003 a.test weight=5"},
		{upstream.Query{Host: "b.test", Service: "http"}, ""},
	} {
		a, err := d.Lookup(t.Context(), tt.query)
		var got []string
		for _, s := range a.Servers {
			got = append(got, s.Addr.String())
			if tt.query.Service != "" {
				got = append(got, s.Host, fmt.Sprintf("weight=%d", s.Weight))
			}
			if s.Backup {
				got = append(got, "backup")
			}
		}
		if text := strings.Join(got, " "); err != nil || text != tt.want {
			t.Errorf("Lookup(%+v) = %s, %v, want %s", tt.query, text, err, tt.want)
		}
	}
}

func TestValidGoesBeforeTheLifetimeOfRecords(t *testing.T) {
	server := testnet.NewDNS(t)
	server.Set("a.test", "60 A 10.0.0.1")
	for _, tt := range []struct{ valid, known, unknown time.Duration }{
		{0, time.Minute, negativeTTL},
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		d := provisioned(t, &DNS{Addresses: []string{server.Addr()}, Valid: caddy.Duration(tt.valid)})
		for name, want := range map[string]time.Duration{"a.test": tt.known, "b.test": tt.unknown} {
			if a, err := d.Lookup(t.Context(), upstream.Query{Host: name, Port: 80}); err != nil || a.Valid != want {
				t.Errorf("valid=%v: Lookup(%s) holds for %v, %v, want %v", tt.valid, name, a.Valid, err, want)
			}
		}
	}
}

func TestAfterAFailureTheNextLookupWaits(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Millisecond: time.Second, time.Minute: time.Minute} {
		if got := provisioned(t, &DNS{Timeout: caddy.Duration(timeout)}).RetryAfter(); got != want {
			t.Errorf("timeout=%v: RetryAfter() = %v, want %v", timeout, got, want)
		}
	}
}

func provisioned(t *testing.T, d *DNS) *DNS {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := d.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return d
}
