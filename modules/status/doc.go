// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package status shows the upstream groups of a running Caddy to people and
// programs: the HTTP handler upstream_status.
//
//	status.example.com {
//		basic_auth {
//			ops $2a$14$...
//		}
//		upstream_status {
//			write
//		}
//	}
//
// A request that accepts JSON, or whose path ends with .json, gets the state of
// all groups, as the runtime API has it; others get the page. The page is in
// the binary, asks no other host, and works under a Content-Security-Policy without
// inline scripts and styles, which it sends. Rates and charts are made in the
// browser from what it polls.
//
// With write, the page can drain, enable and reweight servers. Whoever can see
// it can then do so: the handler knows no users, so the site has to. A change
// needs a request of the page's own origin with the token of the browser's cookie,
// so that another site cannot make one.
package status
