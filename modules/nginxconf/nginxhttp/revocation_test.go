// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestListsOfClientsThatCannotBeReadAreErrorsAtStart(t *testing.T) {
	for want, files := range map[string][]string{"nginx_crl: no files": nil, "nginx_crl: open no/such/file": {"no/such/file"}} {
		if err := (&Revocation{Files: files}).Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Provision() with %q = %v, want %s", files, err, want)
		}
	}
}
