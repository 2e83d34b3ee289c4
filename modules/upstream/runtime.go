// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/pools"
)

// Runtime is the live state of one group. It outlives configurations: each one
// that names the group holds a reference, taken in Provision and released in
// Cleanup. Of the configurations that are started, the latest is in force; when
// it goes, because a reload failed half-way, the one before is again.
type Runtime struct {
	key    runtimeKey
	number int // of a list among those of its name; 0: a named group
	group  *peer.Group

	prober  *prober
	logger  atomic.Pointer[zap.Logger]
	emitter atomic.Pointer[emitter] // the last of emitters
	empty   atomic.Bool             // no server could be used when last looked

	portless atomic.Int64 // the fronts that know no default port

	saving   sync.Mutex // guards what follows, of a group with state; taken before mu
	saved    []byte     // what is stored, as far as is known
	saveErr  error      // of the last time that something was stored
	unusable []byte     // what was stored and reported

	mu      sync.Mutex // guards what follows
	stack   []started  // the latest last
	inForce *generation
	shared  map[string]io.Closer
	removal map[int]func(address string)
	// followers ask for the addresses of lines with resolve, by their key.
	followers map[string]*follower
	closing   *time.Timer // for the next drain_timeout; nil: there is none
	ended     bool        // by Destruct
	unfollow  func()      // ends the look at what is stored; nil: nobody looks
	checks    []*checking // of inForce
	lastID    int
	// emitters are those of the configurations that run, the latest last.
	emitters []*emitter
}

// runtimeKey names a group: a named one, or one made of a list of addresses.
type runtimeKey struct {
	name string
	list string // empty for a named group
}

// generation is what one configuration says of a group. It is not changed.
type generation struct {
	digest string
	config peer.Config // its Servers are those of all lines
	lines  []line

	// sticky says that clients are bound to servers, which routes are for.
	sticky bool

	resolver    Resolver // nil: no line needs one
	resolverKey string
	checks      []checkup
	keeper      *keeper // nil: the servers are not stored
}

// started is a configuration that runs.
type started struct {
	as  *generation // as it was pushed
	now *generation // with what was changed at run time while it was in force
}

// line is one server as configured, with its peers.
type line struct {
	server *Server
	peers  []peer.Server
	// found is the last answer for a line with resolve, nil before the first.
	found []Located
}

// with returns g with other lines.
func (g *generation) with(lines []line) *generation {
	n := *g
	n.lines = lines
	n.config.Servers = nil
	for _, l := range lines {
		n.config.Servers = append(n.config.Servers, l.peers...)
	}
	return &n
}

var runtimes = pools.New("group")

// acquire returns the live state of a group, new if there is none, and takes
// a reference to it.
func acquire(key runtimeKey) (*Runtime, error) {
	v, _, err := runtimes.LoadOrNew(key, func() (caddy.Destructor, error) {
		r := &Runtime{key: key, prober: newProber(), shared: map[string]io.Closer{}, removal: map[int]func(string){}}
		r.logger.Store(zap.NewNop())
		if key.list != "" {
			r.number = takeNumber(key.name)
		}
		r.group = peer.NewGroup(peer.Options{Name: key.name, OnPeer: dress, OnEvent: r.event})
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*Runtime), nil
}

// release gives back the reference of one acquire.
func (r *Runtime) release() error {
	_, err := runtimes.Delete(r.key)
	return err
}

// dress gives a new peer the form in which Caddy's reverse_proxy takes it.
func dress(p *peer.Peer) {
	p.Aux = &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: p.Address()}
}

// Destruct closes what the group shared. It is called when the last
// configuration that names the group is gone.
func (r *Runtime) Destruct() error {
	r.prober.close()
	if r.number > 0 {
		giveNumber(r.key.name, r.number)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.closeAtLocked(time.Time{})
	for _, f := range r.followers {
		f.cancel()
	}
	for _, c := range r.checks {
		c.stop()
	}
	var errs []error
	for key, c := range r.shared {
		errs = append(errs, c.Close())
		delete(r.shared, key)
	}
	return errors.Join(errs...)
}

// Group returns the engine's group.
func (r *Runtime) Group() *peer.Group { return r.group }

// propose brings g into force if no configuration has been started: the first
// one of a group can be used from the end of its Provision.
func (r *Runtime) propose(g *generation, logger *zap.Logger) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stack) > 0 {
		return nil
	}
	r.logger.Store(logger)
	return r.applyLocked(g)
}

// push brings the started generation g into force.
func (r *Runtime) push(g *generation, logger *zap.Logger) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stack = append(r.stack, started{g, g})
	before := r.logger.Swap(logger) // what applying it starts may log at once
	if err := r.applyLocked(g); err != nil {
		r.logger.Store(before)
		r.stack = r.stack[:len(r.stack)-1]
		return err
	}
	return nil
}

// drop ends generation g; if it was in force, the one below is again, with what
// was changed in it at run time. When none is left, the last stays: what is
// still running may pick, retry and finish.
func (r *Runtime) drop(g *generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.stack, func(s started) bool { return s.as == g })
	if i < 0 {
		return
	}
	r.stack = slices.Delete(r.stack, i, i+1)
	if n := len(r.stack); n > 0 {
		if err := r.applyLocked(r.stack[n-1].now); err != nil {
			r.logger.Load().Error("restoring the previous configuration", zap.String("group", r.key.name), zap.Error(err))
		}
	}
	if len(r.stack) < 2 {
		r.group.Forget()
	}
	r.followLocked()
	r.watchLocked()
	r.followStoredLocked()
}

// applyLocked makes g the generation in force. One that is equal to the one
// before changes nothing, not even what was changed at run time.
func (r *Runtime) applyLocked(g *generation) error {
	if r.inForce != nil && r.inForce.digest == g.digest {
		r.enforcedLocked(g.with(r.inForce.lines))
		return nil
	}
	r.recheckLocked(g, true)
	return r.replaceLocked(r.resolvedLocked(g))
}

// replaceLocked brings g into force whatever was before. While more than one
// configuration is started the older one may be needed again, so that the state
// of servers that g does not have is kept.
func (r *Runtime) replaceLocked(g *generation) error {
	config := g.config
	config.Retain = len(r.stack) > 1
	before, now := r.addressesLocked(), time.Now()
	if err := r.group.Apply(config, now); err != nil {
		return err
	}
	r.closeAtLocked(r.group.NextClose(now))
	r.enforcedLocked(g)
	r.checkEmpty()
	for address := range r.addressesLocked() {
		delete(before, address)
	}
	for address := range before {
		for _, f := range r.removal {
			f(address)
		}
	}
	return nil
}

// enforcedLocked notes that g is in force.
func (r *Runtime) enforcedLocked(g *generation) {
	r.inForce = g
	if n := len(r.stack); n > 0 {
		r.stack[n-1].now = g
	}
	r.followLocked()
	r.watchLocked()
	r.followStoredLocked()
}

func (r *Runtime) addressesLocked() map[string]bool {
	set := map[string]bool{}
	for _, p := range r.group.Peers() {
		set[p.Address()] = true
	}
	return set
}

// addressesOf returns the addresses that the server line has in the running
// configuration, nil if it has none.
func (r *Runtime) addressesOf(line string) []string {
	var out []string
	for _, p := range r.group.Peers() {
		if p.Server().Line == line {
			out = append(out, p.Address())
		}
	}
	return out
}

func (r *Runtime) keeps(line string, err error) {
	r.logger.Load().Warn("looking up a server failed: it keeps its addresses",
		zap.String("group", r.key.name), zap.String("server", line), zap.Error(err))
}

// Shared implements exchange.Store.
func (r *Runtime) Shared(key string, create func() io.Closer) io.Closer {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.shared[key]
	if c == nil {
		c = create()
		r.shared[key] = c
	}
	return c
}

// OnRemove implements exchange.Store.
func (r *Runtime) OnRemove(f func(address string)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	id := r.lastID
	r.removal[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.removal, id)
	}
}

// event logs a change of a peer's state. It is called while the Runtime changes
// the group, and must not lock it.
func (r *Runtime) event(e peer.Event) {
	logger := r.logger.Load()
	s := e.Peer.Server()
	fields := []zap.Field{zap.String("group", r.key.name), zap.String("server", s.ID)}
	switch e.Kind {
	case peer.ServerDown:
		logger.Warn("server temporarily disabled", append(fields,
			zap.Int("fails", e.Fails), zap.Duration("fail_timeout", s.FailTimeout), zap.Error(e.Cause))...)
	case peer.ServerUp:
		logger.Info("server recovered", append(fields, zap.Duration("down_for", e.DownFor))...)
	case peer.ServerUnhealthy:
		logger.Warn("server unhealthy", append(fields, zap.String("check", e.Check), zap.String("reason", e.Cause.Error()))...)
	case peer.ServerHealthy:
		logger.Info("server healthy", append(fields, zap.String("check", e.Check), zap.Duration("down_for", e.DownFor))...)
	case peer.ServerClosed:
		logger.Info("drain timeout: what the server still had is closed", append(fields, zap.Int("open", e.Open))...)
	case peer.ServerGone:
		logger.Info("server removed", fields...)
	case peer.PanicBegins:
		logger.Warn("too few servers are up: failed ones are used too", fields...)
	case peer.PanicEnds:
		logger.Info("enough servers are up again", fields...)
	case peer.ProbeWanted:
		r.prober.probe(r.group, e.Peer)
	}
	r.announce(e)
	if e.Kind == peer.ServerDown || e.Kind == peer.ServerOut {
		for _, f := range takenOut {
			f(e.Peer)
		}
	}
}

var takenOut []func(*Peer)

// OnTakenOut makes every group call f, which must not wait, with each server
// that is taken out while it may be held: disabled by the health tracker, set
// down or removed. It is for the init functions of fronts.
func OnTakenOut(f func(*Peer)) { takenOut = append(takenOut, f) }
