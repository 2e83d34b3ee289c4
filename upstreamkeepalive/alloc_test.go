// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package upstreamkeepalive

import (
	"io"
	"testing"
	"time"
)

func TestTheCacheAllocatesNothing(t *testing.T) {
	ca, id := testCache(), &identity{users: 1}
	l, now := &limits{connections: 8, timeout: time.Hour}, time.Now()
	k := &key{network: "tcp", address: "10.0.0.1:80", identity: id}
	ca.put(pooled(ca, k, now), l, now)
	if n := testing.AllocsPerRun(100, func() { ca.put(ca.get(k, now, false), l, now) }); n != 0 {
		t.Errorf("get and put allocate %v times, want 0", n)
	}
}

func TestARoundTripStaysInItsAllocationBudget(t *testing.T) {
	s := rawTCP(t, answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"))
	tr := provisioned(t, new(Transport))
	req, buf := request(t, "GET", s.Addr(), nil), make([]byte, 512)
	n := testing.AllocsPerRun(200, func() {
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := res.Body.Read(buf); err != io.EOF {
			t.Fatal(err)
		}
		res.Body.Close()
	})
	// The server, in the same process, has its share: about 14.
	if n > 24 {
		t.Errorf("a round trip allocates %v times, want at most 24", n)
	}
}
