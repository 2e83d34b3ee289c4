// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"
)

// pace is a limit of bytes in a second, as nginx's limit_rate and
// proxy_limit_rate apply it: in whole seconds of the clock from start on, and with
// a pause after each piece.
type pace struct {
	rate, after int64 // after: bytes that go before the limit holds
	start       time.Time
	moved       int64
	next        time.Time // not before it
}

// allowed is how many bytes may go now, and else how long to wait.
func (p *pace) allowed(now time.Time) (int64, time.Duration) {
	if wait := p.next.Sub(now); wait > 0 {
		return 0, wait
	}
	n := p.rate*(now.Unix()-p.start.Unix()+1) - (p.moved - p.after)
	if n <= 0 {
		return 0, time.Duration(-n*1000/p.rate+1) * time.Millisecond
	}
	return n, 0
}

// took tells that n bytes have gone.
func (p *pace) took(n int64, now time.Time) {
	paced := min(n, p.moved+n-p.after)
	p.moved += n
	if paced > 0 {
		p.next = now.Add(time.Duration(paced*1000/p.rate) * time.Millisecond)
	}
}

// wait returns how many of n bytes may go, when some may.
func (p *pace) wait(ctx context.Context, n int) (int, error) {
	for {
		allowed, wait := p.allowed(time.Now())
		if allowed > 0 {
			return int(min(int64(n), allowed)), nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, context.Cause(ctx)
		}
	}
}

// pacedBody is the body of a proxied server's response.
type pacedBody struct {
	io.ReadCloser
	ctx  context.Context
	pace pace
}

func (b *pacedBody) Read(buf []byte) (int, error) {
	n, err := b.pace.wait(b.ctx, len(buf))
	if err != nil {
		return 0, err
	}
	n, err = b.ReadCloser.Read(buf[:n])
	b.pace.took(int64(n), time.Now())
	return n, err
}

// limitRate is the limit of the response: that of the location, unless $limit_rate
// or X-Accel-Limit-Rate of the proxied server has set another.
func (st *state) limitRate() *pace {
	rate, after := int64(0), int64(0)
	if l := st.location; l != nil {
		rate, after = size(st.expand(l.LimitRate)), size(st.expand(l.LimitRateAfter))
	}
	if v, ok := st.vars["limit_rate"]; ok {
		rate = size(v)
	}
	if st.accelRate != nil {
		rate = *st.accelRate
	}
	if rate == 0 {
		return nil
	}
	return &pace{rate: rate, after: after, start: st.start}
}

// limitRateText is $limit_rate. That of the location is known from the beginning
// of the response on.
func limitRateText(st *state) string {
	rate := int64(0)
	switch v, set := st.vars["limit_rate"]; {
	case st.w.pace != nil:
		rate = st.w.pace.rate
	case st.accelRate != nil:
		rate = *st.accelRate
	case set:
		rate = size(v)
	}
	return strconv.FormatInt(rate, 10)
}

// size reads a size as nginx does, 0 if it is none.
func size(s string) int64 {
	shift := 0
	switch {
	case strings.HasSuffix(s, "k"), strings.HasSuffix(s, "K"):
		shift = 10
	case strings.HasSuffix(s, "m"), strings.HasSuffix(s, "M"):
		shift = 20
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n << shift
}
