// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestAMissingGuestInJSONIsNamedWithItsPackage(t *testing.T) {
	ctx, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for guests, want := range map[string]string{
		``:                                       "balancer: module upstream.balancers.smooth_round_robin is not in this build, add --with github.com/caddy-upstream/caddy-upstream/smoothrr",
		`, "balancer": {"method": "least_conn"}`: "balancer: module upstream.balancers.least_conn is not in this build, add --with github.com/caddy-upstream/caddy-upstream/leastconn",
	} {
		config := `{"groups": {"app": {"servers": [{"address": "127.0.0.1:80"}]` + guests + `}}}`
		if _, err := ctx.LoadModuleByID("upstream", json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
