// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// TestResultsBecomeVerdicts: p and f are results; the verdict after each is u
// (up), d (down) or - (none).
func TestResultsBecomeVerdicts(t *testing.T) {
	tests := []struct {
		name          string
		set           Settings
		results, want string
	}{
		{"defaults", Settings{Fails: 1, Passes: 1}, "pffpf", "uddud"},
		{"fails", Settings{Fails: 3, Passes: 1}, "ffpfffp", "--u--du"},
		{"the first pass is enough", Settings{Fails: 2, Passes: 3}, "pffpppf", "u-d--u-"},
		{"passes in a row", Settings{Fails: 1, Passes: 2}, "fpfppp", "d-d-uu"},
		{"mandatory says at once what is wrong", Settings{Fails: 3, Passes: 2, Mandatory: true}, "ffpffffpp", "ddu--dd-u"},
	}
	for _, tt := range tests {
		s := &server{}
		var got strings.Builder
		now := time.Unix(1, 0)
		for _, c := range tt.results {
			now = now.Add(time.Second)
			r := result{began: now}
			if c == 'f' {
				r.err = errors.New("bad")
			}
			v, ok := s.add(&tt.set, r)
			switch {
			case !ok:
				got.WriteByte('-')
			case v.Reason != nil:
				got.WriteByte('d')
			default:
				got.WriteByte('u')
			}
		}
		if got.String() != tt.want {
			t.Errorf("%s: results %s make %s, want %s", tt.name, tt.results, got.String(), tt.want)
		}
	}
}

func TestAVerdictIsAsOldAsTheFirstOfThePassesItTakes(t *testing.T) {
	s := &server{}
	set := &Settings{Fails: 1, Passes: 3}
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	s.add(set, result{began: at(1), err: errors.New("bad")})
	for n := int64(2); n <= 9; n++ {
		v, ok := s.add(set, result{began: at(n)})
		if ok != (n >= 4) || ok && !v.Since.Equal(at(n-2)) {
			t.Errorf("pass %d: verdict %t since %v, want since %v", n, ok, v.Since.Unix(), n-2)
		}
	}
	if _, ok := s.add(set, result{began: at(5), err: errors.New("late")}); ok {
		t.Error("a result that is older than the last counts")
	}
}

// asked is a checker that notes whom it asks.
type asked struct {
	Settings
	whom chan string
}

func (a *asked) check(_ context.Context, t target) error {
	a.whom <- t.Network + " " + t.Address + " " + t.Host
	return nil
}

func TestAWatcherAsksTheServersThatThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{whom: make(chan string, 10)}
		set := &Settings{Interval: 1e9, Timeout: 1e9, Fails: 1, Passes: 1}
		w := &watcher{check: a, settings: set, key: "k", scheduler: newScheduler(), servers: map[*upstream.Peer]*server{},
			judge: func(*upstream.Peer, upstream.Verdict) {}}
		one, two := new(upstream.Peer), new(upstream.Peer)
		// next is never called for a moment at which somebody is asked.
		next := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			for _, x := range want {
				if got := <-a.whom; got != x {
					t.Errorf("asked %q, want %q", got, x)
				}
			}
			if len(a.whom) > 0 {
				t.Errorf("asked %q as well", <-a.whom)
			}
		}
		w.Update([]upstream.Checked{{Peer: one, Address: "10.0.0.1:80", Line: "a.test:80"}, {Peer: two, Address: "unix//run/b.sock", Line: "unix//run/b.sock"}})
		next(500*time.Millisecond, "tcp 10.0.0.1:80 a.test", "unix /run/b.sock localhost")
		w.Update([]upstream.Checked{{Peer: one, Address: "10.0.0.1:80", Line: "a.test:80"}})
		next(400 * time.Millisecond)
		next(500*time.Millisecond, "tcp 10.0.0.1:80 a.test")
		w.Update(nil)
		time.Sleep(time.Minute)
		next(500 * time.Millisecond)
		w.Update([]upstream.Checked{{Peer: one, Address: "10.0.0.1:80", Line: "x.test"}})
		next(500*time.Millisecond, "tcp 10.0.0.1:80 x.test")
		w.Stop()
		time.Sleep(time.Minute)
		next(500 * time.Millisecond)
	})
}

func TestThePortAndAddressOfACheckMayDiffer(t *testing.T) {
	for _, tt := range []struct {
		set           Settings
		address, line string
		want          target
	}{
		{Settings{}, "[2001:db8::1]:80", "[2001:db8::1]:80", target{"tcp", "[2001:db8::1]:80", "2001:db8::1", "2001:db8::1"}},
		{Settings{Port: 81}, "[2001:db8::1]:80", "a.test:80", target{"tcp", "[2001:db8::1]:81", "a.test", "2001:db8::1"}},
		{Settings{Port: 81}, "unix//run/a.sock", "unix//run/a.sock", target{"unix", "/run/a.sock", "localhost", "localhost"}},
		{Settings{Address: "b.test:99"}, "10.0.0.1:80", "a.test:80", target{"tcp", "b.test:99", "b.test", "b.test"}},
	} {
		if got := tt.set.target(tt.address, tt.line); got != tt.want {
			t.Errorf("target(%s, %s) of %+v = %+v, want %+v", tt.address, tt.line, tt.set, got, tt.want)
		}
	}
}
