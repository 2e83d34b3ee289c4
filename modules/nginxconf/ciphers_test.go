// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddytls"
)

func TestAllCiphersAreThoseOfCaddy(t *testing.T) {
	for openssl, name := range ciphers {
		if id := caddytls.CipherSuiteID(name); id == 0 {
			t.Errorf("%s: Caddy does not know %s", openssl, name)
		}
	}
}
