// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// Connections of clients last as long as the server lets them, unless the
// configuration says otherwise: to count them costs a wrapper of the listener.

func readClientRequests(a *adapter, d *dir) (any, error) {
	a.limitsClients = true
	n, err := readNumber(a, d)
	if n == 0 {
		n = 1 // the first one is one too many already
	}
	return n, err
}

func readClientTime(a *adapter, d *dir) (any, error) {
	a.limitsClients = true
	return readTime(a, d)
}

// readClientTimeout reads keepalive_timeout, of which 0 is: keep none.
func readClientTimeout(a *adapter, d *dir) (any, error) {
	t, err := parseTime(d.args[0])
	if err != nil {
		return nil, d.errorf("%v", err)
	}
	a.limitsClients = a.limitsClients || t == 0
	return d.args, nil
}

func readLocationTimeout(a *adapter, d *dir) (any, error) {
	v, err := readClientTimeout(a, d)
	if t, _ := parseTime(d.args[0]); err == nil && t > 0 {
		a.warn(d, "that of the server counts")
	}
	return v, err
}

// limitClients sets when connections of clients end.
func (a *adapter) limitClients(s *scope, l *nginxhttp.Location) {
	l.KeepaliveRequests = value(s, "keepalive_requests", 0)
	l.KeepaliveTime = caddy.Duration(value(s, "keepalive_time", time.Duration(0)))
	if words := value(s, "keepalive_timeout", []string(nil)); words != nil {
		if t, _ := parseTime(words[0]); t == 0 {
			l.KeepaliveRequests = 1
		}
	}
}
