// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// dir is a directive of the configuration.
type dir struct {
	name  string
	args  []string
	block []*dir // nil without a block
	file  string
	line  int
	bare  bool // an if whose condition is not in parentheses
}

// errorf makes an error that says where d is.
func (d *dir) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", d.file, d.line, d.name, fmt.Sprintf(format, args...))
}

// parse reads body, the text of the file called name, and what it includes.
func parse(body []byte, name string) (dirs []*dir, comments []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: the parser gave up: %v", name, r)
		}
	}()
	var broken []error
	bare := map[string]bool{}
	payload, err := crossplane.Parse(name, &crossplane.ParseOptions{
		Open: func(path string) (io.ReadCloser, error) {
			text := body
			if path != name {
				var err error
				if text, err = os.ReadFile(path); err != nil {
					return nil, err
				}
			}
			if err := terminated(string(text), path, bare); err != nil {
				broken = append(broken, err)
			}
			return io.NopCloser(bytes.NewReader(text)), nil
		},
		CombineConfigs:            true,
		ParseComments:             true,
		SkipDirectiveContextCheck: true,
		SkipDirectiveArgsCheck:    true,
	})
	if len(broken) > 0 {
		return nil, nil, joinErrors(broken)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(payload.Errors) > 0 {
		return nil, nil, parseErrors(payload, name)
	}
	c := converter{name: name, bare: bare}
	for _, cfg := range payload.Config {
		dirs = append(dirs, c.list(cfg.Parsed)...)
	}
	return dirs, c.comments, c.err
}

// terminated looks for what the parser overlooks: directives that a brace ends,
// where it does not know the directive, conditions without parentheses, and a
// byte order mark. Where the conditions are it notes in bare.
func terminated(text, name string, bare map[string]bool) (err error) {
	if strings.HasPrefix(text, "\ufeff") {
		return fmt.Errorf("%s:1: the file begins with a byte order mark: save it without", shown(name))
	}
	var words []string
	for t := range crossplane.Lex(strings.NewReader(text)) {
		switch {
		case t.Error != nil || !t.IsQuoted && strings.HasPrefix(t.Value, "#"):
		case t.IsQuoted || t.Value != ";" && t.Value != "{" && t.Value != "}":
			words = append(words, t.Value)
		case t.Value == "}" && len(words) > 0 && err == nil:
			err = fmt.Errorf("%s:%d: unexpected \"}\": the directive before it is not terminated by \";\"", shown(name), t.Line)
		case t.Value != "}" && len(words) == 0 && err == nil:
			err = fmt.Errorf("%s:%d: unexpected %q", shown(name), t.Line, t.Value)
		default:
			if t.Value == "{" && len(words) > 0 && words[0] == "if" && !inParentheses(words[1:]) {
				bare[place(shown(name), t.Line)] = true
			}
			words = nil
		}
	}
	return err
}

func place(file string, line int) string { return fmt.Sprintf("%s:%d", file, line) }

// inParentheses reports whether words stand in parentheses, which the parser does
// not ask for.
func inParentheses(words []string) bool {
	return len(words) > 0 && strings.HasPrefix(words[0], "(") && strings.HasSuffix(words[len(words)-1], ")")
}

func parseErrors(payload *crossplane.Payload, name string) error {
	var texts []string
	for _, e := range payload.Errors {
		text := e.Error.Error()
		file, line := e.File, 0
		if file == "" {
			file = name
		}
		if e.Line != nil {
			line = *e.Line
		}
		text = strings.TrimSuffix(text, fmt.Sprintf(" in %s:%d", file, line))
		texts = append(texts, fmt.Sprintf("%s:%d: %s", shown(file), line, text))
	}
	return fmt.Errorf("%s", strings.Join(texts, "\n"))
}

// shown is a file's name in messages.
func shown(file string) string { return filepath.ToSlash(file) }

type converter struct {
	name     string
	comments []string
	bare     map[string]bool
	err      error
	depth    int
}

// maxDepth bounds the nesting of blocks.
const maxDepth = 64

func (c *converter) list(ds crossplane.Directives) []*dir {
	out := []*dir{}
	c.depth++
	defer func() { c.depth-- }()
	for _, d := range ds {
		if d.IsComment() {
			c.comments = append(c.comments, *d.Comment)
			continue
		}
		n := &dir{name: unescape(d.Directive), file: shown(d.File), line: d.Line}
		if n.file == "" {
			n.file = shown(c.name)
		}
		n.bare = n.name == "if" && c.bare[place(n.file, n.line)]
		for _, a := range d.Args {
			n.args = append(n.args, unescape(a))
		}
		if c.depth > maxDepth {
			c.err = n.errorf("blocks are nested more than %d deep", maxDepth)
			return out
		}
		if d.IsBlock() {
			n.block = c.list(d.Block)
		}
		out = append(out, n)
	}
	return out
}

// unescape does what nginx does to a backslash when it reads a word; the
// parser leaves it.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if n := strings.IndexByte(`"'\trn`, s[i+1]); n >= 0 {
				b.WriteByte("\"'\\\t\r\n"[n])
				i++
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
