// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import "testing"

func BenchmarkParseHead(b *testing.B) {
	for name, block := range map[string]string{
		"nginx": "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 100\r\nConnection: keep-alive\r\n",
		"app":   "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 10000\r\nConnection: keep-alive\r\nVary: Accept-Encoding\r\nSet-Cookie: a=b; Path=/; HttpOnly\r\nSet-Cookie: session=0123456789abcdef0123456789abcdef; Path=/; HttpOnly\r\nCache-Control: no-cache, private\r\nX-Frame-Options: DENY\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: 0123-4567-89ab\r\nETag: \"0123456789\"\r\n",
		"lower": "HTTP/1.1 200 OK\r\nserver: nginx/1.22.1\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\ncontent-type: text/plain\r\ncontent-length: 100\r\nconnection: keep-alive\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var room [6]string
			for b.Loop() {
				if _, err := parseHead(block, room[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
