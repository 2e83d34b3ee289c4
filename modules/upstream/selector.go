// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-upstream/caddy-upstream/internal/cancelwatch"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Front is a transport that judges the tries of a walk itself: it takes the
// current try from [Current] and ends it. Over any other transport the policy
// observes round trips and leaves retries to Caddy.
type Front interface {
	http.RoundTripper

	// BindGroup tells the front, once and before any request, which group it
	// works for.
	BindGroup(b Binding) error

	// SessionTries is the limit of tries for each request; 0: none.
	SessionTries() int

	// Prepare is called before the first pick of a walk, with the request that
	// Caddy will send: the place to read its body. An error ends the walk; it
	// becomes the result of the round trip.
	Prepare(w *Walk, r *http.Request) error
}

// Binding is what a Front is told of its group.
type Binding struct {
	// Group is the name of the group, or of the list of servers.
	Group     string
	Store     exchange.Store
	Keepalive exchange.Keepalive
	// StaleFails is the group's `keepalive_stale fail`.
	StaleFails bool
	Logger     *zap.Logger

	says bool // the group says something of keepalive
}

// Current returns the walk of the request that a Front is given, and its
// current try; nil if no policy of ours chose the server.
func Current(r *http.Request) (*Walk, *Try) {
	w := currentWalk(r.Context())
	if w == nil {
		return nil, nil
	}
	return w, w.try
}

// selector is what the selection policies share: it turns Caddy's Select into
// the next step of a walk.
type selector struct {
	runtime *Runtime
	logger  *zap.Logger
	front   Front // nil: observer mode
	// affinity binds clients to servers; nil: nothing does.
	affinity *Affinity
	tries    int
	clients  cancelwatch.Watch

	// usable and upstreamOf are set for static pools.
	usable     func(*peer.Peer) bool
	upstreamOf func(*peer.Peer) *reverseproxy.Upstream

	// sentinel is returned when there is no peer: its round trip fails at once.
	sentinel *reverseproxy.Upstream
}

func newSelector(r *Runtime, logger *zap.Logger) *selector {
	return &selector{
		runtime:  r,
		logger:   logger,
		sentinel: &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: r.key.name + ":0"},
		upstreamOf: func(p *peer.Peer) *reverseproxy.Upstream {
			return p.Aux.(*reverseproxy.Upstream)
		},
	}
}

// options tells the engine of the request what the group's method wants to know.
func (s *selector) options(r *http.Request) peer.SessionOptions {
	o := peer.SessionOptions{Tries: s.tries, Usable: s.usable, Hint: s.hint(r), Rounds: s.front == nil}
	wants := s.runtime.group.Wants()
	if wants.Key != "" {
		if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			o.Key = repl.ReplaceAll(wants.Key, "")
		}
	}
	if wants.Client {
		if text, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok {
			o.Client, _ = netip.ParseAddr(text) // none: a unix socket
		}
	}
	return o
}

// pick is Select of all policies.
func (s *selector) pick(rw http.ResponseWriter, r *http.Request) *reverseproxy.Upstream {
	w, begun := s.walkOf(rw, r)
	if begun && s.front != nil {
		if w.Err = s.front.Prepare(w, r); w.Err != nil {
			return s.sentinel
		}
	}
	last := w.try
	t, err := w.nextTry(r.Context())
	if err != nil {
		if t == nil {
			w.Err = fmt.Errorf("waiting in the queue: the client has gone: %w", context.Canceled)
		} else if t != last {
			s.logger.Error("no live upstreams", zap.String("group", s.runtime.key.name), zap.String("reason", err.Error()))
		}
		if s.front == nil {
			return nil
		}
		return s.sentinel
	}
	if c := s.logger.Check(zapcore.DebugLevel, "peer selected"); c != nil {
		c.Write(zap.String("group", s.runtime.key.name), zap.String("peer", t.Lease.Peer().ID()),
			zap.Int64("current_weight", t.Lease.CurrentWeight), zap.Int("tries_left", t.Lease.TriesLeft))
	}
	return s.upstreamOf(t.Lease.Peer())
}

// attach connects the policy with the transport of the handler it is in.
func (s *selector) attach(ctx caddy.Context, h *reverseproxy.Handler, k *Keepalive) error {
	if front, ok := h.Transport.(Front); ok {
		s.front, s.tries = front, front.SessionTries()
		return front.BindGroup(Binding{
			Group: s.runtime.key.name, says: k != nil,
			Store: s.runtime, Keepalive: k.settings(), StaleFails: k != nil && k.Stale == "fail", Logger: s.logger,
		})
	}
	if h.Transport == nil { // Caddy would make it later, and we would not see it
		t := new(reverseproxy.HTTPTransport)
		if err := t.Provision(ctx); err != nil {
			return err
		}
		h.Transport = t
	}
	if k != nil {
		warnKeepalive(s.logger, s.runtime.key.name, TransportName(h.Transport)+" without next_upstream")
	}
	h.Transport = newObserver(h.Transport)
	return nil
}

// walks marks the policies that make walks.
func (*selector) walks() {}

// IsPolicy reports whether raw configures a selection policy that makes walks.
func IsPolicy(raw json.RawMessage) bool {
	var named struct{ Policy string }
	if json.Unmarshal(raw, &named) != nil {
		return false
	}
	info, err := caddy.GetModule("http.reverse_proxy.selection_policies." + named.Policy)
	if err != nil {
		return false
	}
	_, ok := info.New().(interface{ walks() })
	return ok
}

// ParentHandler returns the reverse_proxy handler that is being provisioned.
func ParentHandler(ctx caddy.Context) *reverseproxy.Handler {
	mods := ctx.Modules()
	for i := len(mods) - 1; i >= 0; i-- {
		if h, ok := mods[i].(*reverseproxy.Handler); ok {
			return h
		}
	}
	return nil
}
