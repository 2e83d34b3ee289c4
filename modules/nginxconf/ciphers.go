// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"slices"
	"strings"
)

// ciphers are OpenSSL's names of those that Go has for TLS 1.2, and the names
// that Caddy's cipher_suites has for them.
var ciphers = map[string]string{
	"ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	"ECDHE-RSA-AES128-GCM-SHA256":   "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384":   "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"ECDHE-RSA-CHACHA20-POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	"ECDHE-ECDSA-AES128-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
	"ECDHE-RSA-AES128-SHA":          "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
	"ECDHE-ECDSA-AES256-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
	"ECDHE-RSA-AES256-SHA":          "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
}

// defaultCiphers is nginx's own choice: Go's own is what serves for it here.
const defaultCiphers = "HIGH:!aNULL:!MD5"

// readCiphers reads a list of names into those of Caddy. Classes of ciphers,
// whose members depend on the version of OpenSSL, are not translated.
func readCiphers(a *adapter, d *dir) (any, error) {
	var names, absent []string
	if d.args[0] == defaultCiphers {
		return names, nil
	}
	for w := range strings.FieldsFuncSeq(d.args[0], func(r rune) bool { return r == ':' || r == ',' || r == ' ' }) {
		name, known := ciphers[w]
		switch {
		case w[0] == '!' || w[0] == '-': // of ciphers that have no names here
			if name, known = ciphers[w[1:]]; known {
				names = slices.DeleteFunc(names, func(n string) bool { return n == name })
			}
		case known:
			names = append(names, name)
		case strings.HasPrefix(w, "TLS_"): // of TLS 1.3: not chosen here, nor by nginx
		case strings.Contains(w, "-") && !strings.Contains(w, "+"):
			absent = append(absent, w)
		default:
			return nil, d.errorf("%q is not the name of a cipher: name each, or take the line out for Go's own choice", w)
		}
	}
	if len(names) == 0 {
		return nil, d.errorf("none of these ciphers is there: those are %s", strings.Join(cipherNames(), ", "))
	}
	if len(absent) > 0 {
		a.warn(d, "not there, for clients of TLS 1.2: %s", strings.Join(absent, ", "))
	}
	return slices.Compact(names), nil
}

// cipherNames are the names that can be chosen.
func cipherNames() []string {
	var names []string
	for name := range ciphers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
