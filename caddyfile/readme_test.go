// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/readme"
)

func TestTheREADMEHasEveryOption(t *testing.T) {
	readme.Check(t, "Options", slices.Collect(maps.Keys(newBackend().options())))
}

func TestTheREADMEHasWhatIsRefusedOverHTTP2And3(t *testing.T) {
	const heading = "Over HTTP/2 and 3"
	var names []string
	for _, l := range lacking {
		names = append(names, l.option)
		_, section, _ := strings.Cut(readme.Text(t), heading)
		for row := range strings.Lines(section) {
			if strings.HasPrefix(row, "| `") && strings.Contains(row, "`"+l.option+"`") {
				if strings.HasSuffix(row, "| 3 |\n") != l.only3 {
					t.Errorf("%s is refused over HTTP/3 only: %v, which README.md does not say", l.option, l.only3)
				}
				break
			}
		}
	}
	readme.Check(t, heading, names)
}

func TestTheREADMEHasWhatIsPassedOnAndHowOften(t *testing.T) {
	readme.Check(t, "Passed on", slices.Collect(maps.Keys(passedOn)))
	for row := range strings.Lines(readme.Text(t)) {
		for name, repeatable := range passedOn {
			if strings.HasPrefix(row, "| ") && strings.Contains(row, "`"+name+"`") && strings.HasSuffix(row, "| more than once |\n") != repeatable {
				t.Errorf("%s may stand more than once: %v, which README.md does not say", name, repeatable)
			}
		}
	}
}

func TestTheREADMEHasWhatIsRefusedAndWhatToUseInstead(t *testing.T) {
	var names []string
	text := readme.Text(t)
	for name, instead := range refused {
		if strings.HasSuffix(name, "_") {
			name += "*"
		}
		names = append(names, name)
		if row := "| `" + name + "` | " + instead + " |\n"; !strings.Contains(text, row) {
			t.Errorf("README.md has no row %s", row)
		}
	}
	readme.Check(t, "Refused", names)
}
