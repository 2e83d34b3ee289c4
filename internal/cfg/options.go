// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package cfg is what all Caddyfile parsers of this module share: tables of
// options instead of switches of copies, so that every option is checked for
// the same mistakes with the same words.
package cfg

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// Setter reads the arguments of one option. The dispenser stands on the option's
// name; the setter takes all that belongs to it.
type Setter func(d *caddyfile.Dispenser) error

// Options is a table of the options that may stand in a block, by name.
type Options map[string]Setter

// Repeatable are options that may stand more than once, by name.
type Repeatable map[string]bool

// Block reads the block that d's current segment opens, option by option. what
// names the block in errors. Each option may stand once, except those in many.
func (o Options) Block(d *caddyfile.Dispenser, what string, many Repeatable) error {
	seen := map[string]bool{}
	last := ""
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		set, ok := o[name]
		switch {
		case name == "{":
			return d.Errf("unexpected block after %s in %s: expected none", last, what)
		case !ok:
			if err := o.missing(name); err != nil {
				return d.Errf("%s in %s: %v", name, what, err)
			}
			return d.Errf("unknown option %q in %s: expected %s", name, what, o.names())
		case seen[name] && !many[name]:
			return d.Errf("option %q given twice in %s", name, what)
		}
		seen[name], last = true, name
		if err := set(d); err != nil {
			return err
		}
	}
	return nil
}

// Bare refuses arguments and a block after what, on which d stands.
func Bare(d *caddyfile.Dispenser, what string) error {
	if d.NextArg() {
		return d.Errf("%s: unexpected argument %q: expected none", what, d.Val())
	}
	return NoBlock(d, what)
}

// NoBlock refuses a block after what and its arguments, at the end of which d
// stands.
func NoBlock(d *caddyfile.Dispenser, what string) error {
	if d.NextBlock(d.Nesting()) {
		return d.Errf("%s: unexpected block: expected none", what)
	}
	return nil
}

// Module reads the part of a line that configures a module: its name, which
// stands next, and what the module makes of the rest. what names the kind of
// module in errors.
func Module(d *caddyfile.Dispenser, option, namespace, what string) (name string, mod any, err error) {
	var known Options = map[string]Setter{}
	for _, m := range caddy.GetModules(namespace) {
		known[m.ID.Name()] = nil
	}
	if !d.NextArg() {
		return "", nil, d.Errf("%s: the name of the %s is missing: expected %s", option, what, known.names())
	}
	name = d.Val()
	if _, ok := known[name]; !ok {
		if err := NotInBuild(namespace + "." + name); err != nil {
			return name, nil, d.Errf("%s: %v", option, err)
		}
		return name, nil, d.Errf("%s: unknown %s %q: expected %s", option, what, name, known.names())
	}
	mod, err = caddyfile.UnmarshalModule(d, namespace+"."+name)
	return name, mod, err
}

// ModulesOf adds an option for each module of the namespace. One of this
// repository that is not in the build is not unknown in errors, but missing.
func (o Options) ModulesOf(namespace string, set Setter) {
	for _, m := range caddy.GetModules(namespace) {
		o[m.ID.Name()] = set
	}
	o[namespaces+namespace] = nil
}

// namespaces begins the names of what is no option: a namespace of modules that
// options may be. No word of a Caddyfile begins with it.
const namespaces = "\x00"

// missing tells of a module that would be the option called name.
func (o Options) missing(name string) error {
	for key := range o {
		if namespace, ok := strings.CutPrefix(key, namespaces); ok {
			if err := NotInBuild(namespace + "." + name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o Options) names() string {
	names := slices.Sorted(maps.Keys(o))
	for len(names) > 0 && strings.HasPrefix(names[0], namespaces) {
		names = names[1:]
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}

// one returns the option's only argument.
func one(d *caddyfile.Dispenser, expected string) (name, arg string, err error) {
	name = d.Val()
	args := d.RemainingArgs()
	if len(args) != 1 {
		return name, "", d.Errf("%s: got %d arguments, expected %s", name, len(args), expected)
	}
	return name, args[0], nil
}

// Int reads a whole number of at least low.
func Int(dst *int, low int) Setter {
	return func(d *caddyfile.Dispenser) error {
		name, arg, err := one(d, "a whole number")
		if err != nil {
			return err
		}
		n, err := ParseInt(arg, low)
		if err != nil {
			return d.Errf("%s: %v", name, err)
		}
		*dst = n
		return nil
	}
}

// IntPtr is Int for a field that is nil when the option is not written.
func IntPtr(dst **int, low int) Setter {
	return func(d *caddyfile.Dispenser) error {
		var n int
		if err := Int(&n, low)(d); err != nil {
			return err
		}
		*dst = &n
		return nil
	}
}

// Duration reads a duration of more than zero.
func Duration(dst *caddy.Duration) Setter { return duration(dst, 1) }

// DurationOrZero reads a duration that may be zero.
func DurationOrZero(dst *caddy.Duration) Setter { return duration(dst, 0) }

func duration(dst *caddy.Duration, low time.Duration) Setter {
	return func(d *caddyfile.Dispenser) error {
		name, arg, err := one(d, "a duration such as 30s")
		if err != nil {
			return err
		}
		v, err := ParseDuration(arg, low)
		if err != nil {
			return d.Errf("%s: %v", name, err)
		}
		*dst = caddy.Duration(v)
		return nil
	}
}

// Size reads a number of bytes such as 16KiB, of at least low.
func Size(dst *int64, low int64) Setter {
	return func(d *caddyfile.Dispenser) error {
		name, arg, err := one(d, "a size such as 16KiB")
		if err != nil {
			return err
		}
		n, err := humanize.ParseBytes(arg)
		if err != nil || n > 1<<62 {
			return d.Errf("%s: %q is not a size: expected a number of bytes such as 16KiB", name, arg)
		}
		if int64(n) < low {
			return d.Errf("%s: %s is too small: expected at least %d bytes", name, arg, low)
		}
		*dst = int64(n)
		return nil
	}
}

// OnOff reads the word on or off.
func OnOff(dst *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		_, word, err := oneOf(d, "on", "off")
		*dst = word == "on"
		return err
	}
}

// Flag reads an option without arguments.
func Flag(dst *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if d.NextArg() {
			return d.Errf("%s: unexpected argument %q: expected none", name, d.Val())
		}
		*dst = true
		return nil
	}
}

// Word reads one of the words.
func Word(dst *string, words ...string) Setter {
	return func(d *caddyfile.Dispenser) error {
		_, word, err := oneOf(d, words...)
		*dst = word
		return err
	}
}

func oneOf(d *caddyfile.Dispenser, words ...string) (name, word string, err error) {
	expected := strings.Join(words, " or ")
	if name, word, err = one(d, expected); err != nil {
		return name, "", err
	}
	if !slices.Contains(words, word) {
		return name, "", d.Errf("%s: unexpected %q: expected %s", name, word, expected)
	}
	return name, word, nil
}

// String reads one argument of any text.
func String(dst *string) Setter {
	return func(d *caddyfile.Dispenser) error {
		_, arg, err := one(d, "one value")
		*dst = arg
		return err
	}
}

// Strings reads one or more arguments.
func Strings(dst *[]string) Setter {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		args := d.RemainingArgs()
		if len(args) == 0 {
			return d.Errf("%s: got no arguments, expected one or more", name)
		}
		*dst = args
		return nil
	}
}

// TrustFiles reads the names of PEM files with the certificates to trust, as the
// certificate pool that Caddy loads them with.
func TrustFiles(dst *json.RawMessage) Setter {
	return func(d *caddyfile.Dispenser) error {
		var files []string
		if err := Strings(&files)(d); err != nil {
			return err
		}
		*dst = TrustPool(files...)
		return nil
	}
}

// TrustPool configures Caddy's certificate pool over PEM files.
func TrustPool(files ...string) json.RawMessage {
	return caddyconfig.JSON(map[string]any{"provider": "file", "pem_files": files}, nil)
}

// ParseInt reads a whole number in decimal digits, of at least low.
func ParseInt(s string, low int) (int, error) {
	n, err := strconv.Atoi(s)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errorf("%s is out of range: expected a smaller number", s)
	}
	if err != nil || s[0] == '+' {
		return 0, errorf("%q is not a whole number of %d or more", s, low)
	}
	if n < low {
		return 0, errorf("%d is too small: expected %d or more", n, low)
	}
	return n, nil
}

// ParseDuration reads a duration in Caddy's form, of at least low.
func ParseDuration(s string, low time.Duration) (time.Duration, error) {
	v, err := caddy.ParseDuration(s)
	switch {
	case err != nil:
		return 0, errorf("%q is not a duration: expected a number with a unit, such as 30s", s)
	case v < 0:
		return 0, errorf("%s is negative: expected a duration such as 30s", s)
	case v < low && low > 1:
		return 0, errorf("%s is too short: expected %s or more", s, low)
	case v < low:
		return 0, errorf("%s is too short: expected more than 0", s)
	}
	return v, nil
}
