// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"fmt"
	"testing"
	"time"
)

// At 500 bytes a second, datagrams of 1000 bytes that come every 0.7 s: the
// first begins the session, numbers 0 and 2 pass, 1 and 3 are lost.
func TestDatagramsOverTheRateAreLostAsInNginx(t *testing.T) {
	start := time.Unix(1000, 0).Add(650 * time.Millisecond)
	r := newDatagramRate(500, start)
	r.bytes += 1000 // of number 0
	got := "0"
	for i := 1; i < 4; i++ {
		if r.take(1000, start.Add(time.Duration(i)*700*time.Millisecond)) {
			got += fmt.Sprint(" ", i)
		}
	}
	if got != "0 2" {
		t.Errorf("numbers %s pass, want 0 2", got)
	}
}

func TestDatagramRatesKeepTheAverage(t *testing.T) {
	start := time.Unix(1000, 0)
	r := newDatagramRate(10_000, start)
	passed := 0
	for now := start; now.Before(start.Add(10 * time.Second)); now = now.Add(time.Millisecond) {
		if r.take(100, now) {
			passed += 100
		}
	}
	if passed < 90_000 || passed > 110_000 {
		t.Errorf("%d bytes passed in 10 s at 10,000 a second", passed)
	}
	if none := newDatagramRate(0, start); !none.take(1<<20, start) {
		t.Error("without a rate a datagram was lost")
	}
}

func TestRatesAreReadInBothNotations(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "500": 500, "512k": 512 << 10, "1M": 1 << 20, "16KiB": 16 << 10, "2mib": 2 << 20,
		"": -1, "k": -1, "-1": -1, "1.5m": -1, "10g": -1, "1kk": -1,
	} {
		got, err := parseRate(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("parseRate(%q) = %d, want %d", text, got, want)
		}
	}
}
