// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"math"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Mode says which time of an attempt counts.
type Mode struct {
	Metric peer.Metric
	// Inflight also counts the time that attempts have been waiting for it.
	Inflight bool
}

// Metric returns the time that nginx calls name: `header` of HTTP is the same as
// `first_byte` of stream.
func Metric(name string) (peer.Metric, bool) {
	switch name {
	case "connect":
		return peer.Connect, true
	case "header", "first_byte":
		return peer.FirstByte, true
	case "last_byte":
		return peer.LastByte, true
	}
	return 0, false
}

// Times is what is known of one peer. It is guarded by its group's lock.
type Times struct {
	average [peer.LastByte + 1]int64 // ms; 0: unknown
	faded   int64                    // of the one that counts, at the last look

	// Attempts whose time is not known yet: running of them, spent the ms that
	// they had spent together at changed. waiting averages their mean.
	running, spent, waiting int64
	changed                 time.Time

	seeded time.Time // first looked at, if that was before any use

	// Of Cost: seconds, and the time of the last sample.
	cost    float64
	sampled time.Time
}

// Of returns what is known of p, under the group's lock.
func Of(p *peer.Peer) *Times {
	t, ok := p.Memo.(*Times)
	if !ok {
		t = new(Times)
		p.Memo = t
	}
	return t
}

// Average returns the average of a time; 0: unknown.
func (t *Times) Average(m peer.Metric) time.Duration {
	return time.Duration(t.average[m]) * time.Millisecond
}

// mix takes the sample v into avg.
func mix(avg *int64, v int64) {
	if *avg == 0 {
		*avg = v
		return
	}
	// Converted one by one: a fused multiply-add would round otherwise.
	*avg = int64(0.5 + float64(0.05*float64(v)) + float64(0.95*float64(*avg)))
}

const (
	cluster  = 20   // ms: times are equal within
	longest  = 5000 // ms: longer times are equal
	eachFade = time.Second
)

// forget makes Estimate look at p's average anew: its Score is what Estimate makes
// of that for one connection, as long as nothing happens to the peer. A pick that
// looks at every peer can do no more for each than read it. What else is looked
// at changes with attempts, and with the configuration, which makes a new balancer.
func forget(p *peer.Peer) { p.Score.Until = 0 }

// Estimate is nginx's score of a peer, the less the better: its average, halved
// for each fail_timeout and a second that it has not been used, at least the
// time that attempts in flight have been waiting, rounded up to a cluster, times
// the connections it would have.
func (m Mode) Estimate(p *peer.Peer, now time.Time) int64 {
	return m.EstimateAt(p, now, now.UnixNano())
}

// EstimateAt is Estimate for many peers; ns is now.UnixNano().
func (m Mode) EstimateAt(p *peer.Peer, now time.Time, ns int64) int64 {
	if ns >= p.Score.Until {
		p.Score = m.look(p, now, ns)
	}
	if m.Inflight {
		if t := Of(p); t.running > 0 {
			mix(&t.waiting, t.spent/t.running+now.Sub(t.changed).Milliseconds())
			return clustered(max(t.faded, t.waiting)) * (1 + p.Conns())
		}
	}
	return p.Score.Value * (1 + p.Conns())
}

// look works the score out.
func (m Mode) look(p *peer.Peer, now time.Time, ns int64) peer.Score {
	t, used, out := Of(p), p.Checked(), p.Server().FailTimeout
	t.faded = t.average[m.Metric]
	if used.IsZero() {
		if t.seeded.IsZero() {
			t.seeded = now
		}
		used = t.seeded
	}
	since, next := now.Sub(used), out+1
	if since > out {
		n := since / (out + eachFade)
		t.faded >>= uint64(n)
		next = (n + 1) * (out + eachFade)
	}
	return peer.Score{Value: clustered(t.faded), Until: ns + int64(next-since)}
}

func clustered(rt int64) int64 {
	if rt > longest {
		return longest
	}
	return rt + cluster - rt%cluster
}

// Observer feeds the averages of a mode. It is part of a balancer.
type Observer struct{ Mode Mode }

// Started implements peer.Observer.
func (o Observer) Started(l *peer.Lease, now time.Time) {
	t := Of(l.Peer())
	forget(l.Peer()) // the pick counts as a use
	if !o.Mode.Inflight {
		return
	}
	if t.running > 0 {
		t.spent += now.Sub(t.changed).Milliseconds() * t.running
	}
	t.changed = now
	t.running++
}

// Known implements peer.Observer.
func (o Observer) Known(l *peer.Lease, m peer.Metric, now time.Time) {
	if !o.Mode.Inflight || m != o.Mode.Metric || m == peer.LastByte {
		return
	}
	t := Of(l.Peer())
	t.stop(l.Time(m), now)
	mix(&t.average[m], l.Time(m).Milliseconds())
	forget(l.Peer())
}

// stop ends the wait of one attempt, which took d.
func (t *Times) stop(d time.Duration, now time.Time) {
	switch t.running {
	case 0: // another method has used the peer's memory meanwhile
		return
	case 1:
		t.spent = 0
	default:
		t.spent += now.Sub(t.changed).Milliseconds()*t.running - d.Milliseconds()
		t.changed = now
	}
	t.running--
}

// Ended implements peer.Observer. Only a success teaches anything, and the
// time of an answer only if there was one.
func (o Observer) Ended(l *peer.Lease, outcome peer.Outcome, now time.Time) {
	t := Of(l.Peer())
	known := o.Mode.Inflight
	if o.Mode.Inflight && (o.Mode.Metric == peer.LastByte || l.Time(o.Mode.Metric) == 0) {
		t.stop(now.Sub(l.Start), now)
		known = false
	}
	forget(l.Peer())
	if outcome != peer.Success {
		return
	}
	for m := range peer.LastByte + 1 {
		if v := l.Time(m); v != 0 && !(known && m == o.Mode.Metric) {
			mix(&t.average[m], v.Milliseconds())
		}
	}
}

// Seed gives the peers of l of which nothing is known the mean of the others,
// so that a new server is neither flooded nor shunned. Among peers of which
// nothing is known it does nothing.
func Seed(l *peer.List) {
	var sum [peer.LastByte + 1]int64
	var n [peer.LastByte + 1]int64
	var latest time.Time
	for i := range l.Len() {
		if at := Of(l.At(i)).sampled; at.After(latest) {
			latest = at
		}
	}
	var cost float64
	var costs int
	for i := range l.Len() {
		t := Of(l.At(i))
		for m, v := range t.average {
			if v > 0 {
				sum[m] += v
				n[m]++
			}
		}
		if t.cost > 0 {
			cost += t.Cost(latest)
			costs++
		}
	}
	for i := range l.Len() {
		t := Of(l.At(i))
		forget(l.At(i)) // it may be another time that counts
		if t.fresh() {
			for m := range t.average {
				if n[m] > 0 {
					t.average[m] = sum[m] / n[m]
				}
			}
			if costs > 0 {
				t.cost, t.sampled = cost/float64(costs), latest
			}
		}
	}
}

func (t *Times) fresh() bool {
	return t.cost == 0 && t.average == [peer.LastByte + 1]int64{}
}

// tau is the time in which what Cost knows fades to 1/e.
const tau = 10 * time.Second

// Cost is the peak-sensitive moving average of p's time in seconds: it jumps to
// a greater sample at once, and follows smaller ones and fades while there
// are none with the time constant tau.
func (t *Times) Cost(now time.Time) float64 {
	return t.cost * fade(now.Sub(t.sampled))
}

func fade(d time.Duration) float64 {
	if d <= 0 {
		return 1
	}
	return math.Exp(-float64(d) / float64(tau))
}

// Sample takes d into the cost.
func (t *Times) Sample(d time.Duration, now time.Time) {
	v := d.Seconds()
	if v > t.cost {
		t.cost = v
	} else {
		w := fade(now.Sub(t.sampled))
		t.cost = t.cost*w + v*(1-w)
	}
	t.sampled = now
}
