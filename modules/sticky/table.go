// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package sticky

import (
	"crypto/md5"
	"sync"
	"time"
)

// Table is what "sticky learn" has learned: which peer, by its sid, a client's
// session belongs to. It is bounded in entries and in age, and keeps the MD5
// of the session's id only. Its methods may be called from any goroutine.
type Table struct {
	mu      sync.Mutex // guards everything below
	limit   int
	timeout time.Duration
	entries map[[md5.Size]byte]*entry
	// newest and oldest are the ends of the list in order of last use.
	newest, oldest *entry
}

type entry struct {
	key          [md5.Size]byte
	sid          string
	used         time.Time
	newer, older *entry
}

// NewTable returns an empty table for at most limit sessions, at least one,
// that are forgotten once they have not been used for longer than timeout.
func NewTable(limit int, timeout time.Duration) *Table {
	return &Table{limit: max(1, limit), timeout: timeout, entries: make(map[[md5.Size]byte]*entry)}
}

// Lookup returns the sid of the peer that a session belongs to. It does not
// count as use: that is Learn's.
func (t *Table) Lookup(id string, now time.Time) (sid string, ok bool) {
	key := md5.Sum([]byte(id))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	e := t.entries[key]
	if e == nil {
		return "", false
	}
	return e.sid, true
}

// Learn is told of a successful attempt of a session at the peer with that sid.
// A session that is not known is stored only if create is set: its id came
// from the peer and not only from the client. When the table is full the session
// that has not been used for longest is dropped.
func (t *Table) Learn(id, sid string, create bool, now time.Time) {
	key := md5.Sum([]byte(id))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	e := t.entries[key]
	if e == nil {
		if !create {
			return
		}
		if len(t.entries) >= t.limit {
			t.dropLocked(t.oldest)
		}
		e = &entry{key: key}
		t.entries[key] = e
	} else {
		t.unlinkLocked(e)
	}
	e.sid, e.used = sid, now
	e.newer, e.older = nil, t.newest
	if t.newest != nil {
		t.newest.newer = e
	} else {
		t.oldest = e
	}
	t.newest = e
}

// Resize changes the bounds; what exceeds them is dropped, the oldest first.
func (t *Table) Resize(limit int, timeout time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	t.limit, t.timeout = max(1, limit), timeout
	t.expireLocked(now)
	for len(t.entries) > t.limit {
		t.dropLocked(t.oldest)
	}
}

// Len returns the number of sessions that are known.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

func (t *Table) expireLocked(now time.Time) {
	for t.oldest != nil && now.Sub(t.oldest.used) > t.timeout {
		t.dropLocked(t.oldest)
	}
}

func (t *Table) dropLocked(e *entry) {
	t.unlinkLocked(e)
	delete(t.entries, e.key)
}

func (t *Table) unlinkLocked(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		t.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		t.oldest = e.newer
	}
}
