// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

var placeholderName = regexp.MustCompile(`\{([^{}]+)\}`)

// warnKey warns of placeholders in the key of method that are empty wherever
// front, http or stream, asks the group: all its requests have one key then, or
// none.
func warnKey(logger *zap.Logger, group, front string, method peer.Method, exists func(name string) bool) {
	w, ok := method.(peer.Wanter)
	if !ok {
		return
	}
	for _, m := range placeholderName.FindAllStringSubmatch(w.Wants().Key, -1) {
		if !exists(m[1]) {
			logger.Warn("a placeholder in the hash key does not exist where the group is used: it is empty",
				zap.String("group", group), zap.String("used_by", front), zap.String("placeholder", m[1]))
		}
	}
}

// WarnKey warns of placeholders in the hash key of a named group that are empty in
// all sessions of a front that is not reverse_proxy: those for which exists is
// false.
func WarnKey(ctx caddy.Context, group, front string, exists func(name string) bool) {
	if g, err := groupOf(ctx, group); err == nil {
		warnKey(ctx.Logger(&App{}), group, front, g.method, exists)
	}
}

// httpSpaces are the namespaces of Caddy's placeholders, below http., that are not
// called like a module; upstream is ours, of walks before.
var httpSpaces = []string{
	"vars", "auth", "error", "regexp", "url_pattern", "upstream", "shutting_down", "time_until_shutdown",
}

// registered reports whether a module of this build may define the placeholders
// of {http.<space>.*}: one is called so.
func registered(space string) bool {
	return slices.ContainsFunc(caddy.Modules(), func(id string) bool {
		return slices.Contains(strings.Split(id, "."), space)
	})
}

// inHTTP reports whether a placeholder may exist when a server is chosen for an
// HTTP request.
func inHTTP(name string) bool {
	switch {
	case !strings.Contains(name, "."), strings.HasPrefix(name, "stream."):
		return false
	case strings.HasPrefix(name, "http.reverse_proxy."), strings.HasPrefix(name, "http.response."):
		return false // only afterwards
	case !strings.HasPrefix(name, "http."):
		return true // modules may define any with a namespace of their own
	case !strings.HasPrefix(name, "http.request."):
		space, _, _ := strings.Cut(strings.TrimPrefix(name, "http."), ".")
		return slices.Contains(httpSpaces, space) || registered(space)
	}
	for _, prefix := range []string{"tls.", "orig_", "host.labels.", "uuid"} { // these need a real request
		if strings.HasPrefix(name, "http.request."+prefix) {
			return true
		}
	}
	r, err := http.NewRequest(http.MethodGet, "http://example.com/", http.NoBody)
	if err != nil {
		return true
	}
	_, known := caddyhttp.NewTestReplacer(r).Get(name)
	return known
}
