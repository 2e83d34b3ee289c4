// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import "time"

// tick is how often idle connections are looked at.
const tick = time.Second

// watched is an idle connection as of some moment.
type watched struct {
	c   *conn
	gen uint64
}

// janitor closes idle connections that expire, and those whose server closes
// them or sends what nobody asked for. It runs while there is something idle.
func (ca *cache) janitor() {
	var p prober
	var seen []watched
	timer := time.NewTimer(0) // the first sweep tells when the next is due
	defer timer.Stop()
	for {
		select {
		case <-ca.quit:
			return
		case <-timer.C:
		}
		now := time.Now()
		var victims victims
		var next time.Duration
		seen, next = ca.sweep(now, seen[:0], &victims)
		victims.close()
		if next == 0 {
			return
		}
		var broken []watched
		p.noisy(seen, func(i int) { broken = append(broken, seen[i]) })
		ca.evict(broken)
		clear(seen)
		timer.Reset(next)
	}
}

// sweep takes out what has expired and lists what is idle. next is the time
// until it must be called again, 0 if nothing is idle: then the janitor ends.
func (ca *cache) sweep(now time.Time, idle []watched, v *victims) (_ []watched, next time.Duration) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for c := ca.expiry.last; c != nil && !now.Before(c.expires); c = ca.expiry.last {
		ca.removeLocked(c)
		v.add(c)
	}
	if ca.expiry.n == 0 {
		ca.running = false
		return idle, 0
	}
	for c := ca.recent.first; c != nil; c = c.links[byUse].next {
		idle = append(idle, watched{c, c.gen})
	}
	return idle, max(time.Millisecond, min(tick, ca.expiry.last.expires.Sub(now)))
}

// evict closes the listed connections that have been idle ever since.
func (ca *cache) evict(conns []watched) {
	var victims victims
	ca.mu.Lock()
	for _, w := range conns {
		if w.c.idle && w.c.gen == w.gen {
			ca.removeLocked(w.c)
			victims.add(w.c)
		}
	}
	ca.mu.Unlock()
	victims.close()
}
