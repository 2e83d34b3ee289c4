// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"errors"
	"fmt"
)

// ClosesEach names the option by which each connection serves one request,
// here or, once t is bound, in the group; it is empty if there is none.
func (t *Transport) ClosesEach() string {
	switch {
	case t.Keepalive != nil && *t.Keepalive == 0:
		return "keepalive off"
	case t.ProxyProtocol != "":
		return "proxy_protocol"
	case t.Keepalive == nil && t.groupOff:
		return "the group's keepalive off"
	}
	return ""
}

// GroupKeepsNone tells t, while a Caddyfile is adapted, that the group it will work
// for keeps no connections. Bind finds out by itself.
func (t *Transport) GroupKeepsNone() { t.groupOff = true }

// Check finds options that would do nothing beside others, and names one of
// them as it is called in a Caddyfile.
func (t *Transport) Check() (option string, err error) {
	if t.TLS != nil && len(t.TLS.CRLFiles) > 0 && t.TLS.InsecureSkipVerify {
		return "tls_crl", errors.New("tls_crl does nothing beside tls_insecure_skip_verify: without verification nothing is checked")
	}
	return t.checkKeepalive()
}

// checkKeepalive is Check of the options of keepalive, which have the same names
// in JSON.
func (t *Transport) checkKeepalive() (option string, err error) {
	why := t.ClosesEach()
	switch {
	case why == "":
		return "", nil
	case t.KeepaliveLocal && t.Keepalive != nil && *t.Keepalive == 0:
		return "keepalive", errors.New("keepalive 0 keeps nothing: leave local out")
	case t.KeepaliveRequests != 0:
		option = "keepalive_requests"
	case t.KeepaliveTime != 0:
		option = "keepalive_time"
	case t.KeepaliveTimeout != 0:
		option = "keepalive_timeout"
	case t.Keepalive != nil && *t.Keepalive != 0:
		option = "keepalive"
	default:
		return "", nil
	}
	return option, fmt.Errorf("%s does nothing beside %s: each request has its own connection", option, why)
}
