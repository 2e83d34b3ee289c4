// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/peer/peertest"
)

// plainPeer is what BEHAVIOUR.md sections 1 and 2 know of a peer.
type plainPeer struct {
	next                 *plainPeer
	weight, current, ew  int64
	conns, maxConns      int64
	fails, maxFails      int
	checked, failTimeout int64
	down                 bool
	average              int64 // ms, of least_time
}

func (p *plainPeer) eligible(now int64) bool {
	switch {
	case p.down, p.maxFails > 0 && p.fails >= p.maxFails && now-p.checked <= p.failTimeout, p.maxConns > 0 && p.conns >= p.maxConns:
		return false
	}
	return true
}

// plainLoop is section 8: the smallest ratio by one loop over all peers, ties by
// another one, which is a pass of section 4 over just those.
type plainLoop struct {
	mu    sync.Mutex // guards the peers
	first *plainPeer
	of    func(p *plainPeer, now int64) int64
	all   []*plainPeer
}

func newPlainLoop(n int, of func(p *plainPeer, now int64) int64) *plainLoop {
	l := &plainLoop{of: of}
	var last *plainPeer
	for i := range n {
		w := int64(1 + i%3)
		p := &plainPeer{weight: w, ew: w, maxFails: 1, failTimeout: 10}
		if last == nil {
			l.first = p
		} else {
			last.next = p
		}
		last = p
		l.all = append(l.all, p)
	}
	return l
}

func (l *plainLoop) pick(now int64) *plainPeer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var best *plainPeer
	var least int64 // of best
	many := false
	for p := l.first; p != nil; p = p.next {
		if !p.eligible(now) {
			continue
		}
		switch v := l.of(p, now); {
		case best == nil || v*best.weight < least*p.weight:
			best, least, many = p, v, false
		case v*best.weight == least*p.weight:
			many = true
		}
	}
	if many {
		best = l.pass(best, least, now)
	}
	if best != nil {
		if now-best.checked > best.failTimeout {
			best.checked = now
		}
		best.conns++
	}
	return best
}

func (l *plainLoop) pass(first *plainPeer, least, now int64) (best *plainPeer) {
	var total int64
	for p := first; p != nil; p = p.next {
		if !p.eligible(now) || l.of(p, now)*first.weight != least*p.weight {
			continue
		}
		p.current += p.ew
		total += p.ew
		if p.ew < p.weight {
			p.ew++
		}
		if best == nil || p.current > best.current {
			best = p
		}
	}
	best.current -= total
	return best
}

func (l *plainLoop) done(p *plainPeer) {
	l.mu.Lock()
	p.conns--
	l.mu.Unlock()
}

// rivals are the methods that look at every server, beside the plain loop: on an
// idle group, where all are equally good, and on one in use.
var rivals = []struct {
	method string
	of     func(p *plainPeer, now int64) int64
}{
	{"least_conn", func(p *plainPeer, _ int64) int64 { return p.conns }},
	{"least_time", (*plainPeer).estimate},
}

// estimate is section 11.3.
func (p *plainPeer) estimate(now int64) int64 {
	rt := p.average
	if now-p.checked > p.failTimeout {
		rt >>= uint64((now - p.checked) / (p.failTimeout + 1))
	}
	if rt > 5000 {
		rt = 5000
	} else {
		rt += 20 - rt%20
	}
	return rt * (1 + p.conns)
}

// use brings both sides into the same state: half as many requests again in
// flight as there are servers, and times of 10 to 40 ms.
func use(g *peer.Group, l *plainLoop) {
	for i, p := range g.Peers() {
		took := time.Duration(10+i*7%31) * time.Millisecond
		s := new(peer.Session)
		s.Begin(g, peer.SessionOptions{Hint: p.SID()})
		lease, err := s.Next(peertest.Start)
		if err != nil {
			panic(err)
		}
		lease.Observe(peer.FirstByte, took, peertest.Start)
		lease.Done(peer.Success, peertest.Start)
		l.all[i].average = took.Milliseconds()
		l.all[i].checked = peertest.Start.Unix()
	}
	for range len(l.all) * 3 / 2 {
		s := new(peer.Session)
		s.Begin(g, peer.SessionOptions{})
		if _, err := s.Next(peertest.Start); err != nil {
			panic(err)
		}
		l.pick(peertest.Start.Unix())
	}
}

// BenchmarkBesidePlainLoop runs methods that look at every server and the loop of
// BEHAVIOUR.md section 8 in turn, and reports the fastest of many short runs of
// each: what else the machine does falls on both.
func BenchmarkBesidePlainLoop(b *testing.B) {
	for _, r := range rivals {
		for _, state := range []string{"idle", "in use"} {
			for _, n := range []int{10, 1000, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/peers=%d", r.method, state, n), func(b *testing.B) {
					g, l := sized(b, methods[r.method], n), newPlainLoop(n, r.of)
					if state == "in use" {
						use(g, l)
					}
					s, picks := new(peer.Session), 1+20_000/n
					ours, plain := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
					for b.Loop() {
						t0 := time.Now()
						for range picks {
							pickAndDone(g, s, peer.SessionOptions{})
						}
						t1 := time.Now()
						for range picks {
							l.done(l.pick(peertest.Start.Unix()))
						}
						ours, plain = min(ours, t1.Sub(t0)), min(plain, time.Since(t1))
					}
					b.ReportMetric(float64(ours)/float64(picks), "ours-ns/pick")
					b.ReportMetric(float64(plain)/float64(picks), "plain-ns/pick")
					b.ReportMetric(float64(ours)/float64(plain), "ours/plain")
				})
			}
		}
	}
}
