// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"strings"
	"time"
)

// Conditions are the words of nginx's proxy_next_upstream, as a set.
type Conditions uint16

const (
	OnError Conditions = 1 << iota
	OnTimeout
	OnInvalidHeader
	On500
	On502
	On503
	On504
	On403
	On404
	On429
	NonIdempotent

	// DefaultConditions is what nginx does without a directive.
	DefaultConditions = OnError | OnTimeout
)

var conditionNames = []string{
	"error", "timeout", "invalid_header", "http_500", "http_502", "http_503", "http_504",
	"http_403", "http_404", "http_429", "non_idempotent",
}

// ParseConditions reads the words; "off" is the empty set and stands alone.
func ParseConditions(words []string) (Conditions, error) {
	var set Conditions
word:
	for _, w := range words {
		if w == "off" {
			if len(words) > 1 {
				return 0, fmt.Errorf(`"off" cannot be combined with other conditions`)
			}
			return 0, nil
		}
		for i, name := range conditionNames {
			if w == name {
				if set&(1<<i) != 0 {
					return 0, fmt.Errorf("condition %q given twice", w)
				}
				set |= 1 << i
				continue word
			}
		}
		return 0, fmt.Errorf("unknown condition %q: expected %s or off", w, strings.Join(conditionNames, ", "))
	}
	return set, nil
}

// StatusCondition returns the condition that names a response status; 0 if
// there is none.
func StatusCondition(status int) Conditions {
	switch status {
	case 500:
		return On500
	case 502:
		return On502
	case 503:
		return On503
	case 504:
		return On504
	case 403:
		return On403
	case 404:
		return On404
	case 429:
		return On429
	}
	return 0
}

// NextPolicy is the next_upstream setting of a front.
type NextPolicy struct {
	Conditions Conditions
	// Timeout is the time since the first try after which no further one
	// starts; 0: no limit.
	Timeout time.Duration
}

// Progress is how far a try had come when it ended.
type Progress struct {
	// Sent: the server may have seen some of the request.
	Sent bool
	// Replayable: the request can be sent again whole.
	Replayable bool
	// Idempotent: sending it twice does no harm.
	Idempotent bool
}

// MayRetry reports whether a further try is allowed after event, once the lease
// of the try before has been given back.
func (s *Session) MayRetry(n *NextPolicy, event Conditions, p Progress, now time.Time) bool {
	return s.allowed(n, event, p, now) && s.left(1) > 0
}

// MayReplace reports whether a response, whose lease is still open, is to be
// given up for a further try.
func (s *Session) MayReplace(n *NextPolicy, event Conditions, p Progress, now time.Time) bool {
	return event != 0 && s.allowed(n, event, p, now) && s.left(0) > 1
}

func (s *Session) allowed(n *NextPolicy, event Conditions, p Progress, now time.Time) bool {
	switch {
	case n.Conditions&event == 0:
		return false
	case p.Sent && !p.Replayable:
		return false
	case p.Sent && !p.Idempotent && n.Conditions&NonIdempotent == 0:
		return false
	}
	return s.MayHedge(n, now)
}

// left is the number of tries that are left, the open one included; own is 1
// if none is open.
func (s *Session) left(own int64) int {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if !s.group.mayRetryLocked(own) {
		return 0
	}
	return s.tries - int(s.hedging)
}
