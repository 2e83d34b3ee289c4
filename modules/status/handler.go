// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"embed"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("upstream_status", parse)
	httpcaddyfile.RegisterDirectiveOrder("upstream_status", httpcaddyfile.Before, "respond")
}

// Handler answers with the state of all upstream groups: a page, or JSON if the
// request accepts application/json or its path ends with `.json`.
type Handler struct {
	// Let the page drain, enable and reweight servers. Everybody who can see the
	// page can then do so: put the site's own authentication before it. Default:
	// false.
	Write bool `json:"write,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.upstream_status", New: func() caddy.Module { return new(Handler) }}
}

// Provision sets up the handler.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	return nil
}

func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	out := new(Handler)
	return out, out.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads
//
//	upstream_status [<matcher>] {
//		write
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("upstream_status takes no argument but a matcher, got %q", d.Val())
	}
	for d.NextBlock(0) {
		switch d.Val() {
		case "write":
			if h.Write {
				return d.Err("write given twice")
			}
			if d.NextArg() {
				return d.ArgErr()
			}
			h.Write = true
		default:
			return d.Errf("unknown option %q of upstream_status: expected write", d.Val())
		}
	}
	return nil
}

// Status is the answer in JSON.
type Status struct {
	Time time.Time `json:"time"`
	// Token is what a change has to be sent with; empty: nothing can be changed.
	Token  string                `json:"token,omitempty"`
	Groups []upstream.GroupState `json:"groups"`
}

//go:embed page
var page embed.FS

// assets are the files of the page, by the value of the query's asset.
var assets = map[string]struct{ file, kind string }{
	"":           {"page/index.html", "text/html; charset=utf-8"},
	"style.css":  {"page/style.css", "text/css; charset=utf-8"},
	"model.js":   {"page/model.js", "text/javascript; charset=utf-8"},
	"table.js":   {"page/table.js", "text/javascript; charset=utf-8"},
	"details.js": {"page/details.js", "text/javascript; charset=utf-8"},
	"app.js":     {"page/app.js", "text/javascript; charset=utf-8"},
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP implements caddyhttp.MiddlewareHandler. It is always the last.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Add("Vary", "Accept")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		return h.change(w, r)
	default:
		header.Set("Allow", "GET, HEAD, POST")
		return answer(w, http.StatusMethodNotAllowed, map[string]string{"error": "expected GET or POST"})
	}
	if wantsJSON(r) {
		s := Status{Time: time.Now(), Groups: upstream.Groups(time.Now())}
		if h.Write {
			s.Token = token(w, r)
		}
		return answer(w, http.StatusOK, s)
	}
	a, ok := assets[r.URL.Query().Get("asset")]
	if !ok {
		return caddyhttp.Error(http.StatusNotFound, nil)
	}
	text, err := page.ReadFile(a.file)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	header.Set("Content-Type", a.kind)
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	_, err = w.Write(text)
	return err
}

// wantsJSON reports whether a program asks. Of several types the first counts
// that is one of the two.
func wantsJSON(r *http.Request) bool {
	if strings.HasSuffix(r.URL.Path, ".json") {
		return true
	}
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json":
				return true
			case "text/html":
				return false
			}
		}
	}
	return false
}

func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
