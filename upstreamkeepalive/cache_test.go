// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// idleNet stands for a socket without a descriptor: never stale.
type idleNet struct{ net.Conn }

func (idleNet) Close() error { return nil }

func pooled(ca *cache, k *key, now time.Time) *conn {
	c := &conn{raw: idleNet{}, nc: idleNet{}, fd: -1, created: now}
	ca.opened(c, k)
	return c
}

// testCache has no janitor, so that nothing happens but what the test does.
func testCache() *cache {
	ca := newCache()
	ca.running = true
	return ca
}

// naive is the cache as one list, most recently used first.
type naive struct {
	idle []*conn
	open map[*conn]bool
}

func (n *naive) get(k key, now time.Time) *conn {
	for i := 0; i < len(n.idle); i++ {
		c := n.idle[i]
		if c.bucket.key != k {
			continue
		}
		n.idle = slices.Delete(n.idle, i, i+1)
		if now.Before(c.expires) {
			return c
		}
		delete(n.open, c)
		i--
	}
	return nil
}

func (n *naive) put(c *conn, limit int) {
	if limit == 0 {
		delete(n.open, c)
		return
	}
	for len(n.idle) >= limit {
		delete(n.open, n.idle[len(n.idle)-1])
		n.idle = n.idle[:len(n.idle)-1]
	}
	n.idle = slices.Insert(n.idle, 0, c)
}

func (n *naive) drop(gone func(*conn) bool) {
	n.idle = slices.DeleteFunc(n.idle, func(c *conn) bool {
		if gone(c) {
			delete(n.open, c)
		}
		return gone(c)
	})
}

func TestTheCacheIsOneListMostRecentFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ca, id := testCache(), &identity{users: 1}
		model := &naive{open: make(map[*conn]bool)}
		now := time.Now()
		var keys []key
		for i := range 4 {
			keys = append(keys, key{network: "tcp", address: fmt.Sprintf("127.0.0.1:%d", i+1), identity: id})
		}
		var inUse, all []*conn
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := rapid.IntRange(0, 3).Draw(t, "server")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0, 1, 2, 3:
				want := model.get(keys[k], now)
				got := ca.get(&keys[k], now, false)
				if got != want {
					t.Fatalf("get took another connection than the naive list")
				}
				if got == nil {
					got = pooled(ca, &keys[k], now)
					all, model.open[got] = append(all, got), true
				}
				inUse = append(inUse, got)
			case 4, 5, 6, 7:
				if len(inUse) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(inUse)-1).Draw(t, "which")
				c := inUse[i]
				inUse = slices.Delete(inUse, i, i+1)
				limit := rapid.SampledFrom([]int{0, 1, 3, 5, 5, 5, 5}).Draw(t, "limit")
				timeout := rapid.SampledFrom([]time.Duration{3, 10, 60}).Draw(t, "timeout") * time.Second
				removed := c.bucket.removed
				ca.put(c, &limits{connections: limit, timeout: timeout}, now)
				if removed {
					delete(model.open, c)
				} else {
					model.put(c, limit)
				}
			case 8:
				now = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "s")) * time.Second)
				var v victims
				_, next := ca.sweep(now, nil, &v)
				ca.running = true
				v.close()
				model.drop(func(c *conn) bool { return !now.Before(c.expires) })
				if (next == 0) != (len(model.idle) == 0) {
					t.Fatalf("next sweep in %v with %d idle", next, len(model.idle))
				}
			case 9:
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					ca.remove(keys[k].address)
					model.drop(func(c *conn) bool { return c.bucket.key == keys[k] })
				}
			}
			check(t, ca, model, all)
		}
	})
}

func check(t *rapid.T, ca *cache, model *naive, all []*conn) {
	var got []*conn
	for c := ca.recent.first; c != nil; c = c.links[byUse].next {
		got = append(got, c)
	}
	if !slices.Equal(got, model.idle) {
		t.Fatalf("%d idle, want %d, or in another order", len(got), len(model.idle))
	}
	last := time.Time{}
	n := 0
	for c := ca.expiry.last; c != nil; c = c.links[byExpiry].prev {
		if c.expires.Before(last) {
			t.Fatal("the expiry list is not in order")
		}
		last = c.expires
		n++
	}
	if n != len(got) || ca.recent.n != n || ca.expiry.n != n {
		t.Fatalf("lists of %d, %d and %d", len(got), n, ca.recent.n)
	}
	live := make(map[*bucket]int)
	for _, c := range all {
		if c.closed.Load() == model.open[c] {
			t.Fatalf("a connection is closed %v, want %v", c.closed.Load(), !model.open[c])
		}
		if !c.closed.Load() {
			live[c.bucket]++
		}
	}
	for _, b := range ca.buckets {
		if b.live != live[b] {
			t.Fatalf("bucket counts %d live, want %d", b.live, live[b])
		}
	}
}

func TestForgottenAddressesAreBounded(t *testing.T) {
	ca, id := testCache(), &identity{users: 1}
	for i := range 3 * maxBuckets {
		pooled(ca, &key{address: fmt.Sprint(i), identity: id}, time.Now()).close()
	}
	if n := len(ca.buckets); n > maxBuckets {
		t.Errorf("%d addresses are remembered, want at most %d", n, maxBuckets)
	}
}

func BenchmarkCache(b *testing.B) {
	for _, idle := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			ca, id := testCache(), &identity{users: 1}
			l, now := &limits{connections: 1 << 20, timeout: time.Hour}, time.Now()
			keys := make([]key, 16)
			for i := range keys {
				keys[i] = key{network: "tcp", address: fmt.Sprintf("10.0.0.%d:80", i), identity: id}
			}
			for i := range max(idle, len(keys)) {
				ca.put(pooled(ca, &keys[i%len(keys)], now), l, now)
			}
			b.Run("serial", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					ca.put(ca.get(&keys[i%len(keys)], now, false), l, now)
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					k := &keys[rand.IntN(len(keys))]
					for pb.Next() {
						if c := ca.get(k, now, false); c != nil {
							ca.put(c, l, now)
						}
					}
				})
			})
		})
	}
}
