// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// checks asks for all groups of this process.
var checks = newScheduler()

// watcher counts the results of one check of one group and judges its servers.
type watcher struct {
	check     checker
	settings  *Settings
	key       string // of the check; equal checks have equal keys
	client    *clienttls.Client
	judge     upstream.Judge
	scheduler *scheduler
	servers   map[*upstream.Peer]*server // touched by Update and Stop only
}

// server is one server under one check.
type server struct {
	address, line string
	stop          func()

	mu     sync.Mutex // guards what follows
	asked  time.Time  // when the last result's check began
	known  bool       // it has been judged, by enough results in a row
	fails  int
	passes []time.Time // when the last passes in a row began, at most as many as needed
	ill    bool
}

func watch(kind string, check checker, s *Settings, client *clienttls.Client, judge upstream.Judge) upstream.Watcher {
	config, err := json.Marshal(check)
	if err != nil { // cannot be: it came from JSON
		config = []byte(err.Error())
	}
	return &watcher{
		check: check, settings: s, client: client,
		key:   fmt.Sprintf("%s %d %s", kind, clienttls.Number(client), config),
		judge: judge, scheduler: checks, servers: map[*upstream.Peer]*server{},
	}
}

// Update implements upstream.Watcher.
func (w *watcher) Update(list []upstream.Checked) {
	stays := make(map[*upstream.Peer]bool, len(list))
	for _, c := range list {
		stays[c.Peer] = true
		if s := w.servers[c.Peer]; s != nil {
			if s.address == c.Address && s.line == c.Line {
				continue
			}
			s.stop()
		}
		w.begin(c)
	}
	for p, s := range w.servers {
		if !stays[p] {
			s.stop()
			delete(w.servers, p)
		}
	}
}

// Stop implements upstream.Watcher.
func (w *watcher) Stop() {
	for p, s := range w.servers {
		s.stop()
		delete(w.servers, p)
	}
}

func (w *watcher) begin(c upstream.Checked) {
	t := w.settings.target(c.Address, c.Line)
	key := w.key + " " + t.Network + " " + t.Address
	if w.client != nil { // it says what name is expected
		key += " " + t.Host
	}
	s := &server{address: c.Address, line: c.Line}
	w.servers[c.Peer] = s
	s.stop = w.scheduler.subscribe(probe{
		key:      key,
		interval: time.Duration(w.settings.Interval),
		jitter:   time.Duration(w.settings.Jitter),
		timeout:  time.Duration(w.settings.Timeout),
		ask:      func(ctx context.Context) error { return w.check.check(ctx, t) },
		// A mandatory check that does not persist wants one of its own.
		fresh: w.settings.Mandatory && !w.settings.Persistent,
	}, func(r result) {
		if v, ok := s.add(w.settings, r); ok {
			w.judge(c.Peer, v)
		}
	})
}

// add counts a result; it reports whether there is a verdict.
func (s *server) add(set *Settings, r result) (v upstream.Verdict, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.began.After(s.asked) {
		return v, false
	}
	s.asked = r.began
	if r.err != nil {
		s.passes = s.passes[:0]
		s.fails++
		if s.fails >= set.Fails {
			s.known, s.ill = true, true
		}
		// A server that is out anyway, for it has not passed yet, is out for this.
		return upstream.Verdict{Reason: r.err}, s.ill || set.Mandatory && !s.known
	}
	s.fails = 0
	if len(s.passes) == set.Passes {
		s.passes = append(s.passes[:0], s.passes[1:]...)
	}
	s.passes = append(s.passes, r.began)
	if s.ill && len(s.passes) < set.Passes {
		return v, false
	}
	s.known, s.ill = true, false
	return upstream.Verdict{Since: s.passes[0]}, true
}
