// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package resolve follows the names of servers in DNS: A, AAAA and SRV records,
// asked for again when they expire, as nginx's `resolve` does.
//
//	upstream app {
//		server app.internal:8080 resolve
//		server db.internal service=_postgres._tcp resolve
//		resolver 127.0.0.53 valid=30s ipv6=off
//	}
//
// A and AAAA records are asked for together, and both answers are awaited. An
// answer replaces the addresses of its line: those that stay keep all their
// state, those that are gone finish what they are doing. A name that does not
// exist has no addresses; any other failure changes nothing and is retried.
//
// With `service=`, the line's name is looked up as an SRV record. The records of
// the lowest priority become primary servers, all others backups; weights and
// ports come from the records.
//
// Without `resolver` the system's resolver is asked, which also knows
// /etc/hosts; it tells no lifetime, so that names are then asked for again every
// 10 seconds.
//
// A question goes to each name server in turn, twice over UDP, with its share of
// the time (`timeout`, 5s), and over TCP if the answer was cut. Answers that are
// valid for a time are asked for again a second after its end; those that say
// that there is nothing, after 10 seconds.
//
// Not here: names of name servers, DNSSEC validation, DNS over TLS or HTTPS. The
// wire is github.com/miekg/dns.
package resolve
