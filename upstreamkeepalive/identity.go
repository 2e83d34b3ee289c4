// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"sync"
)

// identity is a way of connecting. Two handlers that connect in the same way
// may share connections, across reloads too; any difference keeps them apart.
type identity struct {
	settings string         // canonical text of the configuration
	certs    [32]byte       // digest of the client certificates
	roots    *x509.CertPool // as loaded: a file may change between two loads
	revoked  [32]byte       // digest of the revocation lists

	local bool // one transport's own
	users int  // transports that use it; guarded by cache.mu
}

func (id *identity) equal(o *identity) bool {
	if id.local || o.local || id.settings != o.settings || id.certs != o.certs || id.revoked != o.revoked || (id.roots == nil) != (o.roots == nil) {
		return false
	}
	return id.roots == nil || id.roots.Equal(o.roots)
}

// identify returns the identities of t's plain and TLS connections.
func (t *Transport) identify() (plain, secure *identity, err error) {
	common := struct {
		Bind string `json:"bind"`
		TLS  any    `json:"tls,omitempty"`
	}{Bind: t.BindAddress}
	text, err := json.Marshal(common)
	if err != nil {
		return nil, nil, err
	}
	plain = &identity{settings: string(text)}
	if t.tlsConfig == nil {
		return plain, nil, nil
	}
	common.TLS = t.TLS
	if text, err = json.Marshal(common); err != nil {
		return nil, nil, err
	}
	h := sha256.New()
	for _, c := range t.tlsConfig.Certificates {
		for _, der := range c.Certificate {
			h.Write(der)
		}
	}
	secure = &identity{settings: string(text), roots: t.tlsConfig.RootCAs, revoked: t.client.Revoked.Digest()}
	h.Sum(secure.certs[:0])
	return plain, secure, nil
}

// join returns the identity in ca that equals id, which is id itself if there
// is none yet or it is local, and counts one more user.
func (ca *cache) join(id *identity, local bool) *identity {
	if id == nil {
		return nil
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	id.local = local
	for known := range ca.identities {
		if known.equal(id) {
			id = known
			break
		}
	}
	id.users++
	ca.identities[id] = struct{}{}
	return id
}

// leave undoes join. Connections of an identity that nobody uses any more are
// closed, and no more are kept.
func (ca *cache) leave(id *identity) {
	if id == nil {
		return
	}
	var victims victims
	ca.mu.Lock()
	if id.users--; id.users == 0 {
		delete(ca.identities, id)
		for _, b := range ca.buckets {
			if b.identity == id {
				ca.dropBucketLocked(b, &victims)
			}
		}
	}
	ca.mu.Unlock()
	victims.close()
}

// maxSessions bounds the servers whose TLS sessions are remembered.
const maxSessions = 1024

// sessions holds a TLS configuration for each server, with a session cache of
// its own: as in nginx, no two servers share a session.
type sessions struct {
	mu      sync.Mutex // guards configs
	configs map[key]*tls.Config
}

func (s *sessions) config(base *tls.Config, k *key) *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.configs[*k]; c != nil {
		return c
	}
	c := base.Clone()
	c.ServerName = k.server
	c.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	if s.configs == nil || len(s.configs) >= maxSessions {
		s.configs = make(map[key]*tls.Config)
	}
	s.configs[*k] = c
	return c
}
