// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// key says which requests may use a connection: those to exactly this address
// with exactly this way of connecting.
type key struct {
	network, address string
	// server is the TLS server name, "" without TLS.
	server string
	// identity stands for everything else about the way of connecting.
	identity *identity
}

// bucket holds what is known about one key.
type bucket struct {
	key
	idle    list // most recently used first
	live    int  // open connections, idle or not
	created uint64
	reused  uint64
	removed bool // its server has left the group: nothing is cached any more
}

// maxBuckets bounds the addresses that are remembered without a connection.
const maxBuckets = 1024

// limits are the settings that decide whether and how long a connection is kept.
type limits struct {
	connections int
	requests    int
	time        time.Duration
	timeout     time.Duration
}

// cache keeps idle connections, as nginx's keepalive does: one limit over all
// servers; the most recently used connection to a server is taken first; the
// least recently used of all is closed to make room.
type cache struct {
	mu      sync.Mutex // guards everything below
	buckets map[key]*bucket
	recent  list // all idle ones, most recently used first
	expiry  list // all idle ones, latest expiry first
	closed  bool
	running bool // the janitor
	quit    chan struct{}

	// watch guards the one registration with the group's state.
	watch sync.Once
	// identities are those in use in this cache.
	identities map[*identity]struct{}
}

func newCache() *cache {
	c := &cache{
		buckets:    make(map[key]*bucket),
		quit:       make(chan struct{}),
		identities: make(map[*identity]struct{}),
	}
	c.recent.which, c.expiry.which = byUse, byExpiry
	return c
}

// get takes the most recently used live connection for k, nil if there is none.
// With unseen, one that can ask has not been looked at.
func (ca *cache) get(k *key, now time.Time, unseen bool) *conn {
	for {
		ca.mu.Lock()
		b := ca.buckets[*k]
		if b == nil || b.idle.first == nil {
			ca.mu.Unlock()
			return nil
		}
		c := b.idle.first
		ca.removeLocked(c)
		fresh := now.Before(c.expires)
		if fresh {
			b.reused++
		}
		ca.mu.Unlock()
		switch {
		case !fresh:
			c.close()
		case unseen && c.asks() || c.silent():
			return c
		default:
			ca.noisy(c)
		}
	}
}

// noisy closes a connection that get took and that could not be used.
func (ca *cache) noisy(c *conn) {
	ca.mu.Lock()
	c.bucket.reused--
	ca.mu.Unlock()
	c.close()
}

// opened enters a new connection, which is in use, and sets its bucket.
func (ca *cache) opened(c *conn, k *key) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	b := ca.buckets[*k]
	if b == nil {
		b = &bucket{key: *k}
		b.idle.which = byBucket
		ca.buckets[*k] = b
	}
	b.live++
	b.created++
	c.cache, c.bucket = ca, b
}

// dropped notes that a connection of b has been closed.
func (ca *cache) dropped(b *bucket) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	b.live--
	if b.live == 0 && len(ca.buckets) > maxBuckets && ca.buckets[b.key] == b {
		delete(ca.buckets, b.key)
	}
}

// put keeps c until it expires, or closes it. The caller has checked that c can
// be used again.
func (ca *cache) put(c *conn, l *limits, now time.Time) {
	var victims victims
	ca.mu.Lock()
	if ca.closed || c.bucket.removed || c.bucket.identity.users <= 0 || l.connections <= 0 {
		victims.add(c)
	} else {
		for ca.recent.n >= l.connections {
			v := ca.recent.last
			ca.removeLocked(v)
			victims.add(v)
		}
		c.idle, c.expires = true, now.Add(l.timeout)
		c.gen++
		ca.recent.pushFirst(c)
		c.bucket.idle.pushFirst(c)
		ca.expiry.insertByExpiry(c)
		if !ca.running {
			ca.running = true
			go ca.janitor()
		}
	}
	ca.mu.Unlock()
	victims.close()
}

func (ca *cache) removeLocked(c *conn) {
	c.idle = false
	ca.recent.remove(c)
	ca.expiry.remove(c)
	c.bucket.idle.remove(c)
}

// remove closes the idle connections to an address (a Caddy network address)
// and keeps none of those that are in use now.
func (ca *cache) remove(address string) {
	na, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return
	}
	dial := na.JoinHostPort(0)
	var victims victims
	ca.mu.Lock()
	for k, b := range ca.buckets {
		if k.network == na.Network && k.address == dial {
			ca.dropBucketLocked(b, &victims)
		}
	}
	ca.mu.Unlock()
	victims.close()
}

func (ca *cache) dropBucketLocked(b *bucket, v *victims) {
	b.removed = true
	delete(ca.buckets, b.key)
	for c := b.idle.first; c != nil; c = b.idle.first {
		ca.removeLocked(c)
		v.add(c)
	}
}

// Close ends the janitor and closes what is idle; connections in use are
// closed when their request ends.
func (ca *cache) Close() error {
	var victims victims
	ca.mu.Lock()
	if !ca.closed {
		ca.closed = true
		close(ca.quit)
		for _, b := range ca.buckets {
			ca.dropBucketLocked(b, &victims)
		}
	}
	ca.mu.Unlock()
	victims.close()
	return nil
}

// victims are closed after the lock has been released.
type victims struct {
	one  *conn
	more []*conn
}

func (v *victims) add(c *conn) {
	if v.one == nil {
		v.one = c
		return
	}
	v.more = append(v.more, c)
}

func (v *victims) close() {
	if v.one != nil {
		v.one.close()
	}
	for _, c := range v.more {
		c.close()
	}
}
