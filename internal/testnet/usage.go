// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
)

// Usage is what a Caddy holds at one moment.
type Usage struct {
	Goroutines  int
	Descriptors int // 0 outside Linux
}

// usage reads the numbers. The admin request that counts the goroutines is in
// them; the descriptors are counted before there is one, though that of the
// reading before may not be gone yet.
func (c *Caddy) usage() (u Usage, goroutines string, fds []string, err error) {
	if fds, err = descriptors(c.PID()); err != nil {
		return u, "", nil, fmt.Errorf("listing descriptors: %w", err)
	}
	u.Descriptors = len(fds)
	status, body, err := c.Admin(http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil || status != http.StatusOK {
		return u, "", nil, fmt.Errorf("reading the goroutine profile: status %d, %v", status, err)
	}
	goroutines = string(body)
	if _, err := fmt.Sscanf(goroutines, "goroutine profile: total %d", &u.Goroutines); err != nil {
		return u, "", nil, fmt.Errorf("reading the goroutine profile: %w", err)
	}
	return u, goroutines, fds, nil
}

// restTime is how long there must be no lower reading.
const restTime = 300 * time.Millisecond

// Usage is what Caddy holds at rest: the lowest readings, once they have not
// gone down for a while. (Single ones may be higher by what has not been closed
// yet, or by the cleaning of its storage that a Caddy begins with.) Requests
// that are meant to warm something up come before.
func (c *Caddy) Usage() Usage {
	c.t.Helper()
	lowest := Usage{Goroutines: math.MaxInt, Descriptors: math.MaxInt}
	var since time.Time
	Eventually(c.t, 30*time.Second, "goroutines and descriptors at rest", func() bool {
		u, _, _, err := c.usage()
		if err != nil {
			c.t.Fatal(err)
		}
		if u.Goroutines < lowest.Goroutines || u.Descriptors < lowest.Descriptors {
			lowest.Goroutines = min(lowest.Goroutines, u.Goroutines)
			lowest.Descriptors = min(lowest.Descriptors, u.Descriptors)
			since = time.Now()
		}
		return time.Since(since) >= restTime
	})
	return lowest
}

// AssertReturnsTo waits at most d until Caddy holds no more than base, and
// fails the test, with all goroutines and descriptors, if it keeps more.
func (c *Caddy) AssertReturnsTo(base Usage, d time.Duration) {
	c.t.Helper()
	var u Usage
	var goroutines string
	var fds []string
	ok := Poll(d, func() bool {
		var err error
		if u, goroutines, fds, err = c.usage(); err != nil {
			c.t.Fatal(err)
		}
		return u.Goroutines <= base.Goroutines && u.Descriptors <= base.Descriptors
	})
	if !ok {
		c.t.Errorf("after %v caddy holds %+v, want at most %+v\ndescriptors:\n%s\n%s",
			d, u, base, strings.Join(fds, "\n"), goroutines)
	}
}
