// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

// table is every directive that is known, with what it becomes. A directive
// that may stand in several kinds of blocks with a different meaning has an
// entry for each. It is made at start, for what it holds reads it.
var table map[string][]entry

func init() {
	table = map[string][]entry{}
	for _, group := range []func() map[string][]entry{
		blockDirectives, upstreamDirectives, serverDirectives, locationDirectives, rewriteDirectives,
		proxyDirectives, grpcDirectives, streamDirectives, streamProxyDirectives,
	} {
		for name, entries := range group() {
			table[name] = append(table[name], entries...)
		}
	}
	for name, e := range accepted {
		table[name] = append(table[name], e)
	}
	for name, advice := range refused { // what it is elsewhere goes before
		table[name] = append([]entry{{in: ^context(0), advice: advice}}, table[name]...)
	}
}
