// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"strconv"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// step is a rule of the rewrite module; config is the scope of an if block.
type step struct {
	nginxhttp.Step
	then   []*step
	config *scope
}

func (a *adapter) setRule(s *scope, d *dir) error {
	name, err := a.defines(d, d.args[0])
	if err != nil {
		return err
	}
	a.uses(d, d.args[1])
	a.noteValues(name, []string{d.args[1]})
	s.steps = append(s.steps, &step{Step: nginxhttp.Step{Set: name, Value: template(d.args[1], nil)}})
	return nil
}

func (a *adapter) breakRule(s *scope, _ *dir) error {
	s.steps = append(s.steps, &step{Step: nginxhttp.Step{Break: true}})
	return nil
}

func (a *adapter) returnRule(s *scope, d *dir) error {
	r := nginxhttp.Step{}
	n, err := strconv.Atoi(d.args[0])
	switch {
	case err != nil && len(d.args) == 1 && (strings.HasPrefix(d.args[0], "http://") ||
		strings.HasPrefix(d.args[0], "https://") || strings.HasPrefix(d.args[0], "$scheme")):
		text := template(d.args[0], nil)
		r.Return, r.Text = 302, &text
		a.uses(d, d.args[0])
	case err != nil || n < 1 || n > 999:
		return d.errorf("invalid return code %q", d.args[0])
	case n < 200:
		return d.errorf("the status %d cannot be returned", n)
	default:
		r.Return = n
		if len(d.args) == 2 {
			a.uses(d, d.args[1])
			text := template(d.args[1], nil)
			r.Text = &text
		}
	}
	s.steps = append(s.steps, &step{Step: r})
	return nil
}

func (a *adapter) rewriteRule(s *scope, d *dir) error {
	if err := a.regex(d, d.args[0]); err != nil {
		return err
	}
	to := d.args[1]
	a.uses(d, to)
	r := nginxhttp.Step{Regex: d.args[0]}
	if strings.HasSuffix(to, "?") {
		r.DropArgs = true
		to = strings.TrimSuffix(to, "?")
	}
	r.Replacement = template(to, nil)
	if strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "$scheme") {
		r.Flag = "redirect"
	}
	if len(d.args) == 3 {
		switch d.args[2] {
		case "last", "break", "redirect", "permanent":
			if r.Flag == "" || d.args[2] == "permanent" {
				r.Flag = d.args[2]
			}
		default:
			return d.errorf("invalid parameter %q: expected last, break, redirect or permanent", d.args[2])
		}
	}
	s.steps = append(s.steps, &step{Step: r})
	return nil
}

// ifBlock translates an if block.
func (a *adapter) ifBlock(s *scope, d *dir) error {
	c, err := a.condition(d)
	if err != nil {
		return err
	}
	in := newScope(s, inIf, d)
	a.walk(in, d.block)
	st := &step{Step: nginxhttp.Step{If: c}, then: in.steps}
	if s.kind == inLocation && (len(in.values) > 0 || len(in.lists) > 0) {
		st.config = in
	} else if len(in.values) > 0 || len(in.lists) > 0 {
		return d.errorf("in server an if block may hold only set, return, rewrite and break")
	}
	in.steps = nil
	s.steps = append(s.steps, st)
	return nil
}

var operators = map[string]bool{"=": true, "!=": true, "~": true, "~*": true, "!~": true, "!~*": true}

// condition reads what stands in the parentheses of an if.
func (a *adapter) condition(d *dir) (*nginxhttp.Condition, error) {
	args := d.args
	for _, w := range args {
		a.uses(d, w)
	}
	invalid := d.errorf("invalid condition %q", strings.Join(args, " "))
	switch {
	case d.bare:
		return nil, d.errorf("invalid condition %q: expected parentheses around it", strings.Join(args, " "))
	case len(args) == 1 && isVariable(args[0]):
		return &nginxhttp.Condition{Value: template(args[0], nil)}, nil
	case len(args) == 2 && len(strings.TrimPrefix(args[0], "!")) == 2 && strings.Contains("-f-d-e-x", strings.TrimPrefix(args[0], "!")):
		return &nginxhttp.Condition{Value: template(args[1], nil), Operator: args[0]}, nil
	case len(args) == 3 && isVariable(args[0]) && operators[args[1]]:
		c := &nginxhttp.Condition{Value: template(args[0], nil), Operator: args[1]}
		if strings.Contains(args[1], "~") {
			if err := a.regex(d, args[2]); err != nil {
				return nil, err
			}
			c.Operand = args[2]
			return c, nil
		}
		c.Operand = template(args[2], nil)
		return c, nil
	}
	return nil, invalid
}

// isVariable reports whether s is exactly one variable.
func isVariable(s string) bool {
	if !strings.HasPrefix(s, "$") {
		return false
	}
	_, n := variableAt(s)
	return n == len(s)
}

// steps turns the rules of a scope into those of the module.
func (a *adapter) buildSteps(in []*step) ([]*nginxhttp.Step, error) {
	var out []*nginxhttp.Step
	for _, s := range in {
		n := s.Step
		var err error
		if n.Then, err = a.buildSteps(s.then); err != nil {
			return nil, err
		}
		if s.config != nil {
			if n.Config, err = a.settings(s.config, &nginxhttp.Location{}); err != nil {
				return nil, err
			}
		}
		out = append(out, &n)
	}
	return out, nil
}

// answers reports whether the rules always answer the request.
func answers(steps []*step) bool {
	for _, s := range steps {
		if s.Return != 0 {
			return true
		}
		if s.Break || s.Regex != "" || s.If != nil && len(s.then) > 0 {
			return false
		}
	}
	return false
}
