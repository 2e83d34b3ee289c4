// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import "testing"

func TestTheHostOfALineIsWhatACertificateIsFor(t *testing.T) {
	for line, want := range map[string]string{
		"app.internal:8443": "app.internal", "app.internal": "app.internal", "tcp/app.internal:8443": "app.internal",
		"10.0.0.1:443": "10.0.0.1", "10.0.0.1": "10.0.0.1", "[::1]:443": "::1", "[::1]": "::1", "::1": "::1",
		"unix//run/app.sock": "", "": "",
	} {
		if got := HostOf(line); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", line, got, want)
		}
	}
}
