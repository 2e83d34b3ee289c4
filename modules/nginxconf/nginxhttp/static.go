// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(Static{})
	caddy.RegisterModule(TryFiles{})
}

// Place is where paths are looked for: nginx's `root` or `alias`.
type Place struct {
	// The folder that stands before the path, with placeholders.
	Root string `json:"root"`
	// If not empty, `root` is an alias for this beginning of the path.
	Alias string `json:"alias_of,omitempty"`
	// `root` is the whole name of the file: nginx's `alias` in a location of a
	// regular expression.
	Whole bool `json:"whole,omitempty"`
}

// file is the file for a path.
func (p *Place) file(st *state, uri string) string {
	root := st.expand(p.Root)
	if p.Whole {
		return root
	}
	if p.Alias == "" {
		return root + uri
	}
	return root + strings.TrimPrefix(uri, p.Alias)
}

// Static serves files as nginx does. It works below nginx_server only.
type Static struct {
	Place
	// The files tried for a path that ends in a slash. Default: index.html.
	Index []string `json:"index,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Static) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.nginx_static", New: func() caddy.Module { return new(Static) }}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *Static) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	st := stateOf(r.Context())
	if st == nil {
		return errors.New("nginx_static works below nginx_server only")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return statusErr(http.StatusMethodNotAllowed, "method %s", r.Method)
	}
	if strings.HasSuffix(st.uri, "/") {
		return s.index(st)
	}
	return s.serve(st, w, r)
}

// index goes to the first index file that exists.
func (s *Static) index(st *state) error {
	names := s.Index
	if names == nil {
		names = []string{"index.html"}
	}
	dir := s.file(st, st.uri)
	for i, name := range names {
		name = st.expand(name)
		if strings.HasPrefix(name, "/") && i == len(names)-1 {
			return &jump{uri: name, args: st.args, hasArgs: st.hasArgs}
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return &jump{uri: st.uri + name, args: st.args, hasArgs: st.hasArgs}
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return statusErr(http.StatusNotFound, "%s is not there", dir)
	}
	return statusErr(http.StatusForbidden, "directory index of %s is forbidden", dir)
}

func (s *Static) serve(st *state, w http.ResponseWriter, r *http.Request) error {
	name := s.file(st, st.uri)
	f, err := os.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return statusErr(http.StatusNotFound, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return statusErr(http.StatusForbidden, "%w", err)
	case err != nil:
		return statusErr(http.StatusNotFound, "%w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return statusErr(http.StatusInternalServerError, "%w", err)
	case info.IsDir():
		to := st.uri + "/"
		if st.args != "" {
			to += "?" + st.args
		}
		return st.sendRedirect(http.StatusMovedPermanently, escapeKept(to, st.args))
	case !info.Mode().IsRegular():
		return statusErr(http.StatusNotFound, "%s is not a file", name)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return statusErr(http.StatusMethodNotAllowed, "method %s", r.Method)
	}
	return st.sendFile(f, info)
}

// escapeKept escapes the path of a redirect and leaves its arguments.
func escapeKept(to, args string) string {
	if args == "" {
		return escapeURI(to)
	}
	return escapeURI(strings.TrimSuffix(to, "?"+args)) + "?" + args
}

// TryFiles is nginx's `try_files`. It works below nginx_server only.
type TryFiles struct {
	Place
	// The paths that are tried, with placeholders; one that ends in a slash is a
	// folder.
	Files []string `json:"files"`
	// What is done if there is none: a path, @name, or =status.
	Else string `json:"else"`
}

// CaddyModule returns the Caddy module information.
func (TryFiles) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.nginx_try_files", New: func() caddy.Module { return new(TryFiles) }}
}

// Validate checks the last word.
func (t *TryFiles) Validate() error {
	if code, ok := strings.CutPrefix(t.Else, "="); ok {
		if n, err := strconv.Atoi(code); err != nil || n < 200 || n > 599 {
			return fmt.Errorf("try_files: %q is not a status", t.Else)
		}
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (t *TryFiles) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	st := stateOf(r.Context())
	if st == nil {
		return errors.New("nginx_try_files works below nginx_server only")
	}
	for _, f := range t.Files {
		dir := strings.HasSuffix(f, "/")
		path := st.expand(f)
		if dir {
			path = strings.TrimSuffix(path, "/")
		}
		info, err := os.Stat(t.file(st, path))
		if err != nil || info.IsDir() != dir {
			continue
		}
		if path != st.uri {
			st.uri, st.unparsed = path, false
		}
		return next.ServeHTTP(w, r)
	}
	if code, ok := strings.CutPrefix(t.Else, "="); ok {
		n, _ := strconv.Atoi(code)
		return statusErr(n, "try_files")
	}
	j := jumpTo(st.expand(t.Else))
	j.hasArgs = true // empty ones if none are written
	return j
}

// Interface guards
var (
	_ caddyhttp.MiddlewareHandler = (*Static)(nil)
	_ caddyhttp.MiddlewareHandler = (*TryFiles)(nil)
	_ caddy.Validator             = (*TryFiles)(nil)
)
