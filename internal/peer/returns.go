// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import "time"

// returns is a heap of the moments at which disabled peers come back, looked
// at when picking. An entry is void if the peer's health says otherwise by then.
type returns []comeback

type comeback struct {
	at    time.Time // when to look
	until time.Time // the time out it is about
	peer  *Peer
}

func (h *returns) push(c comeback) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].at.Before(s[up].at) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *returns) pop() comeback {
	s := *h
	top, last := s[0], len(s)-1
	s[0], s[last] = s[last], comeback{}
	s = s[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if s[c].at.Before(s[least].at) {
				least = c
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}
