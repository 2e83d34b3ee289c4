// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package cfg

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Param reads the value of one name=value parameter. For a flag, a parameter
// without a value, value is empty.
type Param struct {
	// Flag parameters have no value.
	Flag bool
	Set  func(value string) error
}

// Params is a table of the parameters that may stand on a line, as on nginx's
// server lines: name=value, or a name alone for flags.
type Params map[string]Param

// Parse reads args, the rest of a line. The errors have no position.
func (p Params) Parse(args []string) error {
	seen := map[string]bool{}
	for _, arg := range args {
		name, value, has := strings.Cut(arg, "=")
		param, ok := p[name]
		switch {
		case !ok:
			return fmt.Errorf("unknown parameter %q: expected %s", arg, p.names())
		case seen[name]:
			return fmt.Errorf("parameter %q given twice", name)
		case param.Flag && has:
			return fmt.Errorf("parameter %q takes no value", name)
		case !param.Flag && value == "":
			return fmt.Errorf("parameter %q needs a value, as in %s=x", name, name)
		}
		seen[name] = true
		if err := param.Set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (p Params) names() string {
	names := slices.Sorted(maps.Keys(p))
	for i, n := range names {
		if !p[n].Flag {
			names[i] = n + "="
		}
	}
	return strings.Join(names, ", ")
}
