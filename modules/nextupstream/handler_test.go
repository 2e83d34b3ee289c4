// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"

	_ "github.com/caddy-upstream/caddy-upstream/passivehealth"
	_ "github.com/caddy-upstream/caddy-upstream/smoothrr"
)

func init() { caddy.RegisterModule(scripted{}) }

// scripted is a transport that does what the test says.
type scripted struct{}

var script struct {
	sync.Mutex
	do func(*http.Request) (*http.Response, error)
}

func (scripted) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.scripted", New: func() caddy.Module { return new(scripted) }}
}

func (scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	script.Lock()
	do := script.do
	script.Unlock()
	return do(r)
}

// proxy is a reverse_proxy handler over two servers and the script.
type proxy struct {
	t       *testing.T
	handler *reverseproxy.Handler
	asked   []string // the servers, in order
}

// observed is the transport itself, to be observed; otherwise options are
// those of next_upstream around it.
const observed = "observed"

func newProxy(t *testing.T, options string, do func(try int, r *http.Request) (*http.Response, error)) *proxy {
	t.Helper()
	transport := `{"protocol": "scripted"}`
	if options != observed {
		transport = `{"protocol": "next_upstream", "transport": {"protocol": "scripted"}` + options + `}`
	}
	config := fmt.Sprintf(`{
		"load_balancing": {"selection_policy": {"policy": "smooth_round_robin", "servers": [
			{"address": "%[1]s.invalid:81", "max_fails": 0}, {"address": "%[1]s.invalid:82", "max_fails": 0}]}},
		"transport": %[2]s,
		"upstreams": [{"dial": "%[1]s.invalid:81"}, {"dial": "%[1]s.invalid:82"}]
	}`, t.Name()[:8], transport)
	ctx, err := caddy.ProvisionContext(&caddy.Config{Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{Level: "FATAL"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(ctx)
	t.Cleanup(cancel)
	mod, err := ctx.LoadModuleByID("http.handlers.reverse_proxy", json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, handler: mod.(*reverseproxy.Handler)}
	script.Lock()
	script.do = func(r *http.Request) (*http.Response, error) {
		p.asked = append(p.asked, r.URL.Port())
		return do(len(p.asked), r)
	}
	script.Unlock()
	t.Cleanup(p.rest)
	return p
}

// rest fails the test if anything is still held.
func (p *proxy) rest() {
	if n := tempTotal.Load(); n != 0 {
		p.t.Errorf("%d bytes of temporary files are left", n)
	}
	for _, c := range conns(p.t) {
		if c != 0 {
			p.t.Errorf("%d leases are left", c)
		}
	}
}

// conns are the leases of all servers of all groups.
func conns(t *testing.T) []int64 {
	t.Helper()
	mod, err := caddy.GetModule("admin.api.upstream")
	if err != nil {
		t.Fatal(err)
	}
	route := mod.New().(caddy.AdminRouter).Routes()[0]
	w := httptest.NewRecorder()
	if err := route.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/upstream/groups", nil)); err != nil {
		t.Fatal(err)
	}
	var all struct{ Groups []upstream.GroupState }
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, g := range all.Groups {
		for _, s := range g.Servers {
			out = append(out, s.State.Conns)
		}
	}
	return out
}

// serve handles one request as Caddy's server does, and returns the status.
func (p *proxy) serve(r *http.Request) (status int, w *httptest.ResponseRecorder, err error) {
	p.t.Helper()
	w = httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	err = p.handler.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	var he caddyhttp.HandlerError
	if errors.As(err, &he) {
		return he.StatusCode, w, err
	}
	return w.Code, w, err
}

func ok(r *http.Request, body string) *http.Response {
	res := &http.Response{
		StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(newText(body)), ContentLength: int64(len(body)), Request: r,
	}
	return res
}
