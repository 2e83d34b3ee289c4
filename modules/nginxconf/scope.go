// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// context is a kind of block, as a bit.
type context uint

const (
	inMain context = 1 << iota
	inEvents
	inHTTP
	inUpstream
	inServer
	inLocation
	inIf
	inStream
	inStreamServer
	inStreamUpstream

	inAll = inHTTP | inServer | inLocation // where most directives of http may stand
)

var contextNames = map[context]string{
	inMain: "main", inEvents: "events", inHTTP: "http", inUpstream: "upstream",
	inServer: "server", inLocation: "location", inIf: "if",
	inStream: "stream", inStreamServer: "server of stream", inStreamUpstream: "upstream of stream",
}

// entry says what is done with a directive in some contexts. One of its
// functions or texts is set.
type entry struct {
	in       context
	min, max int  // of arguments; max -1: any number
	block    bool // it has a block
	multi    bool // it may be repeated

	// read makes the value that is kept under the directive's name in its scope;
	// of a repeated one a list.
	read func(a *adapter, d *dir) (any, error)
	// do acts at once.
	do func(a *adapter, s *scope, d *dir) error
	// moot: why it can do nothing here; a warning.
	moot string
	// advice: it is known, not translated, and this is what to do.
	advice string
}

// scope is a block: what is written in it, by directive.
type scope struct {
	parent *scope
	kind   context
	at     *dir
	values map[string]any
	lists  map[string][]any
	steps  []*step // of the rewrite module, in order
	inner  []*scope
}

func newScope(parent *scope, kind context, at *dir) *scope {
	s := &scope{parent: parent, kind: kind, at: at, values: map[string]any{}, lists: map[string][]any{}}
	return s
}

// value is the value of a directive in s or the nearest block around it that
// has it, or def.
func value[T any](s *scope, name string, def T) T {
	for ; s != nil; s = s.parent {
		if v, ok := s.values[name]; ok {
			return v.(T)
		}
	}
	return def
}

// own is the value of a directive in s itself.
func own[T any](s *scope, name string) (v T, ok bool) {
	if x, found := s.values[name]; found {
		return x.(T), true
	}
	return v, false
}

// list is the values of a repeated directive in the nearest block that has it:
// an inner block replaces what is outside.
func list[T any](s *scope, name string) []T {
	for ; s != nil; s = s.parent {
		if l, ok := s.lists[name]; ok {
			out := make([]T, len(l))
			for i, v := range l {
				out[i] = v.(T)
			}
			return out
		}
	}
	return nil
}

// walk translates the directives of a block.
func (a *adapter) walk(s *scope, ds []*dir) {
	for _, d := range ds {
		if err := a.directive(s, d); err != nil {
			a.errs = append(a.errs, err)
		}
	}
}

func (a *adapter) directive(s *scope, d *dir) error {
	var found *entry
	for i := range table[d.name] {
		if e := &table[d.name][i]; e.in&s.kind != 0 {
			found = e
		}
	}
	switch {
	case found == nil && len(table[d.name]) > 0:
		return d.errorf("it is not allowed in %s, or not translated there, but in %s: move it or take it out", contextNames[s.kind], allowedIn(d.name))
	case found == nil && familyAdvice(d.name) != "":
		return d.errorf("not translated: %s", familyAdvice(d.name))
	case found == nil:
		if meant := similar(d.name, s.kind); meant != "" {
			return d.errorf("unknown: is %s meant?", meant)
		}
		return d.errorf("unknown or not translated: take it out, or configure what it does in Caddy")
	case found.advice != "" && len(d.args) == 1 && defaults[d.name] == d.args[0]:
		return nil // it says what is so anyway
	case found.advice != "":
		return d.errorf("not translated: %s", found.advice)
	case found.moot != "":
		a.warn(d, "%s", found.moot)
		return nil
	case found.block != (d.block != nil):
		if found.block {
			return d.errorf("a block is missing: expected {")
		}
		return d.errorf("it has no block: expected ;")
	case len(d.args) < found.min || found.max >= 0 && len(d.args) > found.max:
		return d.errorf("invalid number of arguments: %d", len(d.args))
	case found.do != nil:
		return found.do(a, s, d)
	}
	v, err := found.read(a, d)
	if err != nil {
		return err
	}
	if found.multi {
		s.lists[d.name] = append(s.lists[d.name], v)
		return nil
	}
	if _, dup := s.values[d.name]; dup {
		return d.errorf("it is duplicate: it may stand once in a block")
	}
	s.values[d.name] = v
	return nil
}

// warn adds a warning about d.
func (a *adapter) warn(d *dir, format string, args ...any) {
	a.warnings = append(a.warnings, caddyconfig.Warning{
		File: d.file, Line: d.line, Directive: d.name, Message: fmt.Sprintf(format, args...),
	})
}

// joinErrors is all errors, one a line.
func joinErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "\n"))
}
