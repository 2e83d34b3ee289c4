// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package readme

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const text = "# Package\n\n| `none` | of it |\n\n## Options\n\nText with `code`.\n\n| option | `what` |\n| --- | --- |\n" +
	"| `a <n>`, `a off` | `x` |\n| `b=on\\|off` | |\n\n| more | |\n| --- | --- |\n| `c` | |\n\n## Others\n\n| a | |\n| --- | --- |\n| `d` | |\n"

func TestTheFirstColumnBelowAHeadingIsRead(t *testing.T) {
	if diff := cmp.Diff([]string{"a <n>", "a off", "b=on|off", "c"}, column(text, "Options")); diff != "" {
		t.Errorf("column(), -want +got:\n%s", diff)
	}
	if got := column(text, "Absent"); got != nil {
		t.Errorf("column() of no heading = %v, want none", got)
	}
}

// failing is a test that notes that it failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed = true }

func TestATableWithTooFewOrTooManyNamesFails(t *testing.T) {
	t.Chdir("testdata")
	for _, c := range []struct {
		want   []string
		failed bool
	}{
		{[]string{"weight", "backup"}, false},
		{[]string{"weight", "backup", "down"}, true},
		{[]string{"weight"}, true},
	} {
		f := &failing{TB: t}
		Check(f, "Parameters", c.want)
		if f.failed != c.failed {
			t.Errorf("Check(%v) fails: %v, want %v", c.want, f.failed, c.failed)
		}
	}
}
