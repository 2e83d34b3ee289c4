// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package integration

import (
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// blackHole ends the test: that a listener with a full queue is silent is sure
// on Linux only.
func blackHole(t *testing.T) string {
	t.Helper()
	testnet.Missing(t, "full queues of listeners take Linux")
	return ""
}
