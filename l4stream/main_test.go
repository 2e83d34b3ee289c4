// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream_test

import (
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-upstream/caddy-upstream/l4stream"
	_ "github.com/caddy-upstream/caddy-upstream/leastconn"
	_ "github.com/caddy-upstream/caddy-upstream/modules/hash"
)

func TestMain(m *testing.M) { testnet.Main(m) }
