// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// The tests of this package are a build without upstream_keepalive.
const missingKeepalive = "module http.reverse_proxy.transport.upstream_keepalive is not in this build, " +
	"add --with github.com/caddy-upstream/caddy-upstream/upstreamkeepalive"

func TestAMissingDefaultTransportIsNamedWithItsPackage(t *testing.T) {
	ctx, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{`{}`, `{"transport": {"protocol": "upstream_keepalive"}}`} {
		_, err = ctx.LoadModuleByID("http.reverse_proxy.transport.next_upstream", json.RawMessage(config))
		if err == nil || !strings.Contains(err.Error(), missingKeepalive) {
			t.Errorf("%s: %v, want %q", config, err, missingKeepalive)
		}
	}
	for _, block := range []string{"", " {\ntransport upstream_keepalive\n}"} {
		err := new(Transport).UnmarshalCaddyfile(caddyfile.NewTestDispenser("next_upstream" + block))
		if err == nil || !strings.Contains(err.Error(), missingKeepalive) {
			t.Errorf("next_upstream%s: %v, want %q", block, err, missingKeepalive)
		}
	}
}
