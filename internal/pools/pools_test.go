// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestHeldListsWhatIsReferenced(t *testing.T) {
	pool := New("things")
	create := func() (caddy.Destructor, error) { return nothing{}, nil }
	for range 2 {
		if _, _, err := pool.LoadOrNew("one", create); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := Held(), []string{"things one: 2 references"}; !slices.Equal(got, want) {
		t.Errorf("Held() = %q, want %q", got, want)
	}
	for range 2 {
		if _, err := pool.Delete("one"); err != nil {
			t.Fatal(err)
		}
	}
	if got := Held(); len(got) > 0 {
		t.Errorf("Held() = %q after all was given back, want nothing", got)
	}
}

type nothing struct{}

func (nothing) Destruct() error { return nil }
