// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"sync"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { upstream.OnTakenOut(bound.close) }

// bound are the sessions that end when their server is taken out, whatever
// configuration they belong to.
var bound = boundSessions{byPeer: map[*peer.Peer]map[*Session]struct{}{}}

type boundSessions struct {
	mu     sync.Mutex // guards byPeer
	byPeer map[*peer.Peer]map[*Session]struct{}
}

// add binds s to the server of its last try, until its end.
func (b *boundSessions) add(s *Session) {
	p := s.tries[len(s.tries)-1].lease.Peer()
	b.mu.Lock()
	set := b.byPeer[p]
	if set == nil {
		set = map[*Session]struct{}{}
		b.byPeer[p] = set
	}
	set[s] = struct{}{}
	b.mu.Unlock()
	s.bound = p
	if !s.walk.Group().InService(p) { // since a moment ago
		s.Abort()
	}
}

func (b *boundSessions) remove(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byPeer[s.bound], s)
	if len(b.byPeer[s.bound]) == 0 {
		delete(b.byPeer, s.bound)
	}
}

// close ends the sessions that are bound to p.
func (b *boundSessions) close(p *peer.Peer) {
	b.mu.Lock()
	list := make([]*Session, 0, len(b.byPeer[p]))
	for s := range b.byPeer[p] {
		list = append(list, s)
	}
	b.mu.Unlock()
	for _, s := range list {
		s.Abort()
	}
}
