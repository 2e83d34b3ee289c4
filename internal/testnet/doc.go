// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package testnet runs real processes on real sockets for tests: Caddy itself,
// backends that answer by script, and the servers that people put behind it.
//
// Caddy is the test binary, executed again as a child process, with exactly
// the modules that the test imports:
//
//	import _ "github.com/caddyserver/caddy/v2/modules/standard"
//
//	func TestMain(m *testing.M) { testnet.Main(m) }
//
//	func TestProxyAnswers(t *testing.T) {
//		b := testnet.NewBackend(t, testnet.Answer{Body: "hello"})
//		c := testnet.StartCaddy(t, `
//			http://127.0.0.1:{{port "front"}} {
//				reverse_proxy {{.}}
//			}`, b.Addr())
//		res := testnet.Get(t, "http://"+c.Addr("front")+"/")
//		...
//	}
//
// A configuration is text (a Caddyfile or JSON) and a template: {{port "x"}}
// and {{addr "x"}} name ports that the kernel chooses and that stay the same
// over reloads; {{.}} is the caller's data.
//
// Whatever was started is ended with the test, by its own process id; on Linux
// the kernel ends it too when the test binary dies first. What a child wrote
// is shown when the test fails, and a data race in it fails the test.
//
// A server or permission that is missing is a skip, and a failure when the
// environment says CI=true: see [Need] and [NewHost].
package testnet
