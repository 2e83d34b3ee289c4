// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/http"
	"regexp"
	"strings"

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

// inStream reports whether a placeholder may exist in a stream session. Modules
// may define any with a namespace of their own.
func inStream(name string) bool {
	return strings.Contains(name, ".") && !strings.HasPrefix(name, "http.")
}

// inHTTP reports whether a placeholder may exist when a server is chosen for an
// HTTP request.
func inHTTP(name string) bool {
	switch {
	case !strings.Contains(name, "."), strings.HasPrefix(name, "stream."):
		return false
	case strings.HasPrefix(name, "http.reverse_proxy."), strings.HasPrefix(name, "http.response."):
		return false // only afterwards
	case !strings.HasPrefix(name, "http.request."):
		return true
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
