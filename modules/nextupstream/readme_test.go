// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/readme"
)

func TestTheREADMEHasEveryOption(t *testing.T) {
	options := slices.Collect(maps.Keys(new(Transport).Options(false)))
	readme.Check(t, "Options", append(options, "transport"))
}

func TestTheREADMEHasEveryCondition(t *testing.T) {
	_, err := peer.ParseConditions([]string{"nonsense"})
	if err == nil {
		t.Fatal("nonsense is a condition")
	}
	_, list, ok := strings.Cut(err.Error(), ": expected ")
	if !ok {
		t.Fatalf("the error lists nothing: %v", err)
	}
	readme.Check(t, "Conditions", strings.Split(strings.ReplaceAll(list, " or ", ", "), ", "))
}
