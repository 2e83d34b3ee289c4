// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Step is one rule of nginx's rewrite module; exactly one field is used beside
// `text` and `then`.
type Step struct {
	// `set`: the name of the variable; its value is in `value`.
	Set   string `json:"set,omitempty"`
	Value string `json:"value,omitempty"`

	// `rewrite`: a regular expression for the path, what becomes of it, and
	// `last`, `break`, `redirect` or `permanent`.
	Regex       string `json:"regex,omitempty"`
	Replacement string `json:"replacement,omitempty"`
	Flag        string `json:"flag,omitempty"`
	// Leave the arguments of the request out.
	DropArgs bool `json:"drop_args,omitempty"`

	// `return`: the status, and a text or the target of a redirect. 444 closes
	// the connection.
	Return int     `json:"return,omitempty"`
	Text   *string `json:"text,omitempty"`

	// `break`: no more rules.
	Break bool `json:"break,omitempty"`

	// `if`: a condition, the rules that follow if it holds, and what is used
	// instead of the location's own settings then.
	If     *Condition `json:"if,omitempty"`
	Then   []*Step    `json:"then,omitempty"`
	Config *Location  `json:"config,omitempty"`

	regex *regexp.Regexp
}

// Condition is that of nginx's `if`.
type Condition struct {
	// The text that is looked at, with placeholders.
	Value string `json:"value"`
	// Empty: neither empty nor 0. `=`, `!=`; `~`, `~*`, `!~`, `!~*` with a
	// regular expression; `-f`, `-d`, `-e`, `-x` and `!-f` and so on for files.
	Operator string `json:"operator,omitempty"`
	// What it is compared with.
	Operand string `json:"operand,omitempty"`

	regex *regexp.Regexp
}

func (s *Step) provision(ctx caddy.Context, in *Location) error {
	if s == nil {
		return fmt.Errorf("a rule is null")
	}
	var err error
	if s.Regex != "" {
		if s.regex, err = regexp.Compile(s.Regex); err != nil {
			return err
		}
	}
	if s.If != nil {
		if err := s.If.provision(); err != nil {
			return err
		}
	}
	if s.Config != nil {
		if err := s.Config.provision(ctx, in); err != nil {
			return err
		}
	}
	for _, t := range s.Then {
		if err := t.provision(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (c *Condition) provision() error {
	switch c.Operator {
	case "", "=", "!=", "-f", "-d", "-e", "-x", "!-f", "!-d", "!-e", "!-x":
		return nil
	case "~", "!~", "~*", "!~*":
		expr := c.Operand
		if strings.HasSuffix(c.Operator, "*") {
			expr = "(?i)" + expr
		}
		var err error
		c.regex, err = regexp.Compile(expr)
		return err
	}
	return fmt.Errorf("if: unknown operator %q", c.Operator)
}

// holds reports whether the condition is true.
func (c *Condition) holds(st *state) bool {
	v := st.expand(c.Value)
	switch c.Operator {
	case "":
		return v != "" && v != "0"
	case "=":
		return v == st.expand(c.Operand)
	case "!=":
		return v != st.expand(c.Operand)
	}
	if c.regex != nil {
		m := c.regex.FindStringSubmatch(v)
		st.captures = capture{}
		if m != nil {
			st.matched(capture{c.regex, m})
		}
		return (m != nil) != strings.HasPrefix(c.Operator, "!")
	}
	op, negative := strings.CutPrefix(c.Operator, "!")
	info, err := os.Stat(v)
	ok := err == nil
	switch {
	case !ok:
	case op == "-f":
		ok = info.Mode().IsRegular()
	case op == "-d":
		ok = info.IsDir()
	case op == "-x":
		ok = info.Mode().Perm()&0o111 != 0
	}
	return ok != negative
}

// rewriting is the run of a location's rules.
type rewriting struct {
	changed bool // the path is another one
	stop    bool
}

// rewrite runs the rules of l. The error is a jump if the path has changed, or
// what answers the request.
func (st *state) rewrite(l *Location) error {
	var run rewriting
	if err := st.run(l.Rewrite, &run); err != nil {
		return err
	}
	if run.changed {
		return &jump{uri: st.uri, args: st.args, hasArgs: st.hasArgs, again: true}
	}
	return nil
}

func (st *state) run(steps []*Step, run *rewriting) error {
	for _, s := range steps {
		if run.stop {
			return nil
		}
		var err error
		switch {
		case s.If != nil:
			if !s.If.holds(st) {
				continue
			}
			if s.Config != nil {
				st.location = s.Config
			}
			err = st.run(s.Then, run)
		case s.Set != "":
			v := st.expand(s.Value)
			if s.Set == "limit_rate" {
				v = strconv.FormatInt(size(v), 10)
			}
			if st.vars == nil {
				st.vars = map[string]string{}
			}
			st.vars[s.Set] = v
			if s.Set == "args" {
				st.args, st.hasArgs, st.unparsed = v, true, false
			}
		case s.Return != 0:
			return st.answer(s)
		case s.Break:
			run.stop = true
		case s.regex != nil:
			err = st.replace(s, run)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replace is nginx's `rewrite`.
func (st *state) replace(s *Step, run *rewriting) error {
	m := s.regex.FindStringSubmatch(st.uri)
	if m == nil {
		st.captures = capture{}
		return nil
	}
	st.matched(capture{s.regex, m})
	redirect := s.Flag == "redirect" || s.Flag == "permanent"
	target, args, hasArgs := strings.Cut(s.Replacement, "?") // no placeholder has one
	st.escaping = redirect && st.quoted
	uri := st.expand(target)
	newArgs := ""
	if st.escaping = st.quoted; hasArgs {
		newArgs = st.expand(args)
	}
	st.escaping = false
	if !s.DropArgs && st.args != "" {
		if hasArgs {
			newArgs += "&"
		}
		newArgs += st.args
	}
	if redirect {
		if st.quoted {
			uri = unescapeRedirect(uri)
		}
		if newArgs != "" {
			uri += "?" + newArgs
		}
		status := http.StatusFound
		if s.Flag == "permanent" {
			status = http.StatusMovedPermanently
		}
		return st.sendRedirect(status, uri)
	}
	if uri == "" {
		return statusErr(http.StatusInternalServerError, "the rewritten URI has a zero length")
	}
	st.uri, st.args, st.hasArgs = unescape(uri), newArgs, st.hasArgs || hasArgs
	st.unparsed, st.internal = false, true
	if s.Flag == "break" {
		st.validLocation = false
		run.changed, run.stop = false, true
		return nil
	}
	run.changed = true
	run.stop = run.stop || s.Flag == "last"
	return nil
}

// answer is nginx's `return`.
func (st *state) answer(s *Step) error {
	switch {
	case s.Return == 444:
		st.abort(444)
	case s.Text == nil && isRedirect(s.Return):
		return st.sendRedirect(s.Return, "")
	case s.Text == nil && s.Return >= 300:
		return statusErr(s.Return, "return %d", s.Return)
	case s.Text != nil && isRedirect(s.Return):
		return st.sendRedirect(s.Return, st.expand(*s.Text))
	}
	text := ""
	if s.Text != nil {
		text = st.expand(*s.Text)
	}
	if s.Return == http.StatusOK && !st.whole() {
		if answered, err := st.condition(entity{}); answered {
			return err
		}
	}
	h := st.w.Header()
	if s.Return != http.StatusNoContent {
		h.Set("Content-Type", st.contentType())
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
	st.w.WriteHeader(s.Return)
	if st.r.Method != http.MethodHead && s.Return != http.StatusNoContent {
		_, _ = st.w.Write([]byte(text))
	}
	return done{}
}

func isRedirect(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}
