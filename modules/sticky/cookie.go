// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	"strconv"
	"strings"
	"time"
)

// Attributes are the fixed part of the cookie that "sticky cookie" sets.
type Attributes struct {
	Name     string
	Path     string
	HTTPOnly bool
	Secure   bool
	// Expires is nil for a cookie of the browser's session. Forever is nginx's
	// "max".
	Expires *time.Duration
}

// Forever is nginx's "expires=max".
const Forever = 315360000 * time.Second

const (
	foreverDate = "Thu, 31-Dec-37 23:55:55 GMT"
	dateLayout  = "Mon, 02-Jan-06 15:04:05 GMT"
)

// Header returns the value of Set-Cookie that binds a client to sid, to the
// letter as nginx writes it. An empty domain or sameSite is left out.
func (a *Attributes) Header(sid, domain, sameSite string, now time.Time) string {
	var b strings.Builder
	b.WriteString(a.Name)
	b.WriteByte('=')
	b.WriteString(sid)
	if a.Expires != nil {
		date := foreverDate
		if *a.Expires != Forever {
			date = now.Add(*a.Expires).UTC().Format(dateLayout)
		}
		b.WriteString("; expires=")
		b.WriteString(date)
		b.WriteString("; max-age=")
		b.WriteString(strconv.FormatInt(int64(*a.Expires/time.Second), 10))
	}
	if domain != "" {
		b.WriteString("; domain=")
		b.WriteString(domain)
	}
	if a.HTTPOnly {
		b.WriteString("; httponly")
	}
	if a.Secure {
		b.WriteString("; secure")
	}
	if sameSite != "" {
		b.WriteString("; samesite=")
		b.WriteString(sameSite)
	}
	if a.Path != "" {
		b.WriteString("; path=")
		b.WriteString(a.Path)
	}
	return b.String()
}

// SameSite returns what is sent for a value that was computed for a request:
// strict in the place of anything that browsers do not know.
func SameSite(value string) string {
	if value == "" || ValidSameSite(value) {
		return value
	}
	return "strict"
}

// ValidSameSite reports whether value is strict, lax or none, in any case.
func ValidSameSite(value string) bool {
	for _, known := range []string{"strict", "lax", "none"} {
		if strings.EqualFold(value, known) {
			return true
		}
	}
	return false
}
