// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

// The lists that an idle connection is in.
const (
	byUse = iota
	byBucket
	byExpiry
	lists
)

type link struct{ prev, next *conn }

// list is a doubly linked list through conn.links: no allocation.
type list struct {
	first, last *conn
	n           int
	which       int
}

func (l *list) pushFirst(c *conn) { l.insertBefore(c, l.first) }

// insertBefore puts c before at, or last if at is nil.
func (l *list) insertBefore(c, at *conn) {
	k := &c.links[l.which]
	k.next = at
	if at != nil {
		k.prev = at.links[l.which].prev
		at.links[l.which].prev = c
	} else {
		k.prev = l.last
		l.last = c
	}
	if k.prev != nil {
		k.prev.links[l.which].next = c
	} else {
		l.first = c
	}
	l.n++
}

// insertByExpiry keeps the latest expiry first. With one timeout for all, c
// goes first at once; it walks only past connections that live longer.
func (l *list) insertByExpiry(c *conn) {
	at := l.first
	for at != nil && at.expires.After(c.expires) {
		at = at.links[l.which].next
	}
	l.insertBefore(c, at)
}

func (l *list) remove(c *conn) {
	k := &c.links[l.which]
	if k.prev != nil {
		k.prev.links[l.which].next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.links[l.which].prev = k.prev
	} else {
		l.last = k.prev
	}
	*k = link{}
	l.n--
}
