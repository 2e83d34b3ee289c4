// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Hinter is a Balancer that accounts for choices made without it.
type Hinter interface {
	// Hinted is called when a sticky hint has chosen p instead of Pick.
	Hinted(pass *Pass, p *Peer)
}

// ChargeRoundRobin books a choice that was not made by round robin as nginx
// does: unless x is as far behind as it can be, a pass is run and x wins it.
func (p *Pass) ChargeRoundRobin(x *Peer) { p.l.chargeTo(x, p.s.tried) }

// SID is the peer's name for sticky sessions: its route, or a digest of its
// printable address.
func (p *Peer) SID() string { return *p.sid.Load() }

func (p *Peer) setSID(s *Server, secret string) {
	sid := s.Route
	if sid == "" {
		sid = Digest(s.Name, secret)
	}
	p.sid.Store(&sid)
}

// Digest names an address without showing it: nginx's hexadecimal MD5, or half
// of a HMAC-SHA-256 with the secret, if there is one.
func Digest(address, secret string) string {
	if secret == "" {
		sum := md5.Sum([]byte(address))
		return hex.EncodeToString(sum[:])
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(address))
	return hex.EncodeToString(mac.Sum(nil)[:md5.Size])
}

// hinted returns the peer that the session's hint names, if it may be picked.
// Only the first peer of a sid counts.
func (l *List) hinted(s *Session, now time.Time) *Peer {
	if l.sids == nil {
		l.sids = make(map[string]*Peer, len(l.peers))
		for _, p := range l.peers {
			if sid := p.SID(); l.sids[sid] == nil {
				l.sids[sid] = p
			}
		}
	}
	p := l.sids[s.opts.Hint]
	if p == nil || contains(s.tried, p) || !p.mayHint(now) {
		return nil
	}
	return p
}
