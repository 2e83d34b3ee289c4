// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// pipeSize is the capacity asked for. Larger pipes move more per system call;
// the kernel counts what an unprivileged user's pipes may hold (64 MiB before
// it gives out small ones), and the limit is no error here.
const pipeSize = 512 << 10

// pipe is empty whenever it is in a pool.
type pipe struct {
	r, w int
	// slots is how many pieces of data it takes for certain, each of a byte at
	// least.
	slots int
}

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	size, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size = 0
	}
	return &pipe{r: fds[0], w: fds[1], slots: size / unix.Getpagesize()}, nil
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// perPool is how many idle pipes a pool keeps; what is more is closed.
const perPool = 4

// pipePool keeps idle pipes, the last used on top. It is not a sync.Pool: that
// would close descriptors at some later time, or under the race detector never.
type pipePool struct {
	mu   sync.Mutex
	idle [perPool]*pipe // guarded by mu
	n    int            // guarded by mu
	_    [64]byte       // pools do not share a cache line
}

// pools spreads directions over as many pools as there are processors.
var (
	pools    = make([]pipePool, min(runtime.GOMAXPROCS(0), 64))
	nextPool atomic.Uint32
)

func pickPool() *pipePool {
	return &pools[int(nextPool.Add(1))%len(pools)]
}

func (pp *pipePool) get() (*pipe, error) {
	pp.mu.Lock()
	if pp.n == 0 {
		pp.mu.Unlock()
		return newPipe()
	}
	pp.n--
	p := pp.idle[pp.n]
	pp.mu.Unlock()
	return p, nil
}

func (pp *pipePool) put(p *pipe) {
	pp.mu.Lock()
	if pp.n < perPool {
		pp.idle[pp.n] = p
		pp.n++
		pp.mu.Unlock()
		return
	}
	pp.mu.Unlock()
	p.close()
}

// ClosePipes closes the idle pipes. Sessions that need one make a new one.
func ClosePipes() {
	for i := range pools {
		pp := &pools[i]
		pp.mu.Lock()
		for ; pp.n > 0; pp.n-- {
			pp.idle[pp.n-1].close()
			pp.idle[pp.n-1] = nil
		}
		pp.mu.Unlock()
	}
}
