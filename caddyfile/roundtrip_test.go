// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/go-cmp/cmp"
)

// guests are the places of modules in the JSON that we write: the field, the
// key that names the module, and its namespace.
var guests = []struct{ field, key, namespace string }{
	{"transport", "protocol", "http.reverse_proxy.transport"},
	{"selection_policy", "policy", "http.reverse_proxy.selection_policies"},
	{"dynamic_upstreams", "source", "http.reverse_proxy.upstreams"},
	{"balancer", "method", "upstream.balancers"},
	{"sticky", "mode", "upstream.sticky"},
	{"health_tracker", "tracker", "upstream.health_trackers"},
}

// roundTrip decodes every module of ours in the configuration, strictly, and
// checks that encoding it gives the same again: nothing is lost or invented.
func roundTrip(t *testing.T, adapted []byte) {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	if app, ok := config["apps"].(map[string]any)["upstream"].(map[string]any); ok {
		again(t, "upstream", app)
	}
	walk(t, config)
}

func walk(t *testing.T, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			walk(t, x)
		}
	case map[string]any:
		for _, g := range guests {
			if guest, ok := v[g.field].(map[string]any); ok {
				name, _ := guest[g.key].(string)
				again(t, g.namespace+"."+name, without(guest, g.key))
			}
		}
		for _, x := range v {
			walk(t, x)
		}
	}
}

func without(m map[string]any, key string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// again decodes config into the module and encodes it again.
func again(t *testing.T, id string, config map[string]any) {
	t.Helper()
	info, err := caddy.GetModule(id)
	if err != nil {
		t.Error(err)
		return
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	mod := info.New()
	if err := caddy.StrictUnmarshalJSON(raw, mod); err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	encoded, err := json.Marshal(mod)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config, got); diff != "" {
		t.Errorf("%s is something else after decoding and encoding (-before +after):\n%s", id, diff)
	}
}

// proxyHosts lists what Caddy's reverse_proxy holds of its own upstreams.
func proxyHosts(t *testing.T) []string {
	t.Helper()
	info, err := caddy.GetModule("admin.api.reverse_proxy")
	if err != nil {
		t.Fatal(err)
	}
	route := info.New().(caddy.AdminRouter).Routes()[0]
	w := httptest.NewRecorder()
	if err := route.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, route.Pattern, nil)); err != nil {
		t.Fatal(err)
	}
	var hosts []struct{ Address string }
	if err := json.Unmarshal(w.Body.Bytes(), &hosts); err != nil {
		t.Fatal(err)
	}
	var held []string
	for _, h := range hosts {
		held = append(held, "reverse_proxy upstream "+h.Address)
	}
	return held
}
