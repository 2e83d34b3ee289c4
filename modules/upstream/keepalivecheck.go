// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// WarnKeepalive warns that a handler does not do what its group says of
// keepalive, if it says anything. It is no error: other handlers of the group may
// do it. why is what keeps the handler from it, in the words of a Caddyfile.
func (b *Binding) WarnKeepalive(why string) {
	if b.says {
		warnKeepalive(b.Logger, b.Group, why)
	}
}

func warnKeepalive(logger *zap.Logger, group, why string) {
	logger.Warn("what the group says of keepalive does nothing in a handler",
		zap.String("group", group), zap.String("because_of", why))
}

// TransportName is what a transport is called in a Caddyfile.
func TransportName(transport http.RoundTripper) string {
	if mod, ok := transport.(caddy.Module); ok {
		return "transport " + mod.CaddyModule().ID.Name()
	}
	return fmt.Sprintf("transport %T", transport)
}
