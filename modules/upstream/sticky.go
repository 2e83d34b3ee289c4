// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
)

// Sticky binds the sessions of clients to servers, whatever the balancing method
// is. It is a Caddy module in the namespace upstream.sticky.
type Sticky interface {
	// Bind is called once, while a configuration is loaded, with the place for
	// state that is to survive it. Nothing may change there yet that another
	// configuration uses.
	Bind(store exchange.Store) *Affinity
}

// Affinity is what a Sticky does, in functions that may be nil but for Hint. A
// server is known by its sid: its route, or a digest of its address.
type Affinity struct {
	// Hint returns the sid of the server that a request is bound to, empty if
	// it is to none.
	Hint func(r *http.Request) string
	// Cookie returns the Set-Cookie that binds the client to a server.
	Cookie func(r *http.Request, sid string) string
	// Learn is called when the header of a response has arrived, and returns
	// what to do with the sid of its server once the response has ended well,
	// or at once if AtHeader is set; nil: nothing.
	Learn    func(r *http.Request) func(sid string)
	AtHeader bool
	// Secret is the key of the digests; empty: nginx's digests.
	Secret string
	// Zone names the table of sessions; no two groups share one. Empty: none.
	Zone string
}

const stickyNamespace = "upstream.sticky"

// parseSticky reads `sticky <mode> ...`.
func (g *Group) parseSticky(d *caddyfile.Dispenser) error {
	mode, mod, err := cfg.Module(d, "sticky", stickyNamespace, "mode")
	if err != nil {
		return err
	}
	g.StickyRaw = caddyconfig.JSONModuleObject(mod, "mode", mode, nil)
	return nil
}

func (g *Group) loadSticky(ctx caddy.Context) error {
	if g.StickyRaw == nil {
		return nil
	}
	mod, err := ctx.LoadModule(g, "StickyRaw")
	if err != nil {
		return missing("sticky", "mode", stickyNamespace, g.StickyRaw, err)
	}
	var ok bool
	if g.sticky, ok = mod.(Sticky); !ok {
		return fmt.Errorf("sticky %T is not a sticky mode", mod)
	}
	return nil
}

// bindSticky gives the sticky mode its place for state.
func (g *Group) bindSticky() {
	if g.sticky != nil {
		g.affinity = g.sticky.Bind(g.runtime)
	}
}

// checkZones refuses a table of sessions that two groups would share.
func (a *App) checkZones() error {
	owners := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(a.Groups)) {
		f := a.Groups[name].affinity
		if f == nil || f.Zone == "" {
			continue
		}
		if owner := owners[f.Zone]; owner != "" {
			return fmt.Errorf("group %s: sticky: zone %q is that of group %s: a zone serves one group only", name, f.Zone, owner)
		}
		owners[f.Zone] = name
	}
	return nil
}

// hint returns the sid of the server that the request is bound to.
func (s *selector) hint(r *http.Request) string {
	if s.affinity == nil {
		return ""
	}
	return s.affinity.Hint(r)
}

// SetCookie puts the cookie that binds the client to the walk's latest server
// into the response's header, in the place of the one for the server before. A
// front calls it just before the round trip returns what the client shall get:
// earlier the cookie would appear in interim responses.
func (w *Walk) SetCookie() {
	if w.affinity == nil || w.affinity.Cookie == nil || w.latest == nil || w.writer == nil {
		return
	}
	h := w.writer.Header()
	if was := w.cookie; was != "" {
		h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(v string) bool { return v == was })
	}
	w.cookie = w.affinity.Cookie(w.request, w.latest.SID())
	h.Add("Set-Cookie", w.cookie)
}

// Meet is told of the response that is to go to the client, before Answered.
func (t *Try) Meet(res *http.Response) {
	t.header, t.cookies = res.Header, res.Header["Set-Cookie"]
	f := t.walk.affinity
	if f == nil || f.Learn == nil {
		return
	}
	learn := f.Learn(t.walk.request)
	switch {
	case learn == nil:
	case f.AtHeader:
		learn(t.Lease.Peer().SID())
	default:
		t.learn = learn
	}
}
