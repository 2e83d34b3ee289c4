// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/http"
	"strings"
)

// responseValue is what placeholders tell of the response that goes to the
// client: {http.upstream.cookie.<name>} is the value of a cookie that it sets,
// {http.upstream.header.<name>} that of a field of its header, as header_down
// has left it. Names ignore case, as nginx's variables do.
func (r *Record) responseValue(name string) (any, bool) {
	kind, field, _ := strings.Cut(name, ".")
	if kind != "cookie" && kind != "header" || field == "" {
		return nil, false
	}
	if len(r.tries) == 0 {
		return "", true
	}
	t := r.tries[len(r.tries)-1]
	if kind == "header" {
		return t.header.Get(field), true
	}
	return cookieSet(t.cookies, field), true
}

// cookieSet returns the value of the cookie called name in lines of Set-Cookie.
func cookieSet(lines []string, name string) string {
	for _, line := range lines {
		c, err := http.ParseSetCookie(line)
		if err == nil && strings.EqualFold(c.Name, name) {
			return c.Value
		}
	}
	return ""
}
