// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/readme"
)

func TestTheREADMEHasEveryOption(t *testing.T) {
	readme.Check(t, "Options", OptionNames())
}
