// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Host is another machine: a network namespace behind a veth pair, with an
// address in 10.203.0.0/16.
type Host struct {
	IP    string // the host's address
	Outer string // our address on the same link

	t      testing.TB
	ns     string
	dropOn bool
}

// NewHost makes a host and removes it with the test. It takes root and ip(8);
// without them the test is skipped, and fails when CI=true.
func NewHost(t testing.TB) *Host {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, "network namespaces take root")
	}
	Need(t, "ip")
	if out, err := exec.Command("ip", "link", "show").CombinedOutput(); err != nil {
		Missing(t, "ip link show: "+string(out))
	}
	var last error
	for range 50 { // another process may have taken the subnet
		h, err := newHost(t)
		if err == nil {
			t.Cleanup(h.remove)
			return h
		}
		if last = err; !errors.Is(err, errSubnetTaken) {
			break
		}
	}
	Missing(t, "making a network namespace: "+last.Error())
	return nil
}

var errSubnetTaken = errors.New("subnet taken")

func newHost(t testing.TB) (h *Host, err error) {
	var b [5]byte
	_, _ = rand.Read(b[:])
	id := fmt.Sprintf("%08x", b[1:])
	subnet := fmt.Sprintf("10.203.%d.", b[0])
	h = &Host{t: t, ns: "cu" + id, Outer: subnet + "1", IP: subnet + "2"}
	if out, err := ip("route show %s0/24", subnet); err != nil || out != "" {
		return nil, errors.Join(errSubnetTaken, err)
	}
	defer func() {
		if err != nil {
			h.remove()
		}
	}()
	outer, inner := "cuo"+id, "cui"+id
	for _, c := range []string{
		"netns add " + h.ns,
		"link add " + outer + " type veth peer name " + inner + " netns " + h.ns,
		"addr add " + h.Outer + "/24 dev " + outer,
		"link set " + outer + " up",
		"-n " + h.ns + " addr add " + h.IP + "/24 dev " + inner,
		"-n " + h.ns + " link set lo up",
		"-n " + h.ns + " link set " + inner + " up",
	} {
		if _, err = ip("%s", c); err != nil {
			return nil, err
		}
	}
	return h, h.pinNeighbours(outer, inner)
}

// pinNeighbours makes address resolution permanent on both sides, so that a
// host that drops everything is a silence and not "no route to host".
func (h *Host) pinNeighbours(outer, inner string) error {
	in, err := ip("-n %s -br link show dev %s", h.ns, inner)
	if err != nil {
		return err
	}
	out, err := ip("-br link show dev %s", outer)
	if err != nil {
		return err
	}
	fi, fo := strings.Fields(in), strings.Fields(out)
	if len(fi) < 3 || len(fo) < 3 {
		return fmt.Errorf("no link-layer address in %q, %q", in, out)
	}
	if _, err = ip("neigh replace %s lladdr %s dev %s nud permanent", h.IP, fi[2], outer); err != nil {
		return err
	}
	_, err = ip("-n %s neigh replace %s lladdr %s dev %s nud permanent", h.ns, h.Outer, fo[2], inner)
	return err
}

// remove takes the namespace away; the veth pair goes with it.
func (h *Host) remove() {
	_, _ = ip("link del cuo%s", strings.TrimPrefix(h.ns, "cu"))
	_, _ = ip("netns del %s", h.ns)
}

func ip(format string, args ...any) (string, error) {
	line := fmt.Sprintf(format, args...)
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", line, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Drop makes the host a black hole, or ends it: packets to and from it vanish
// without an answer, those of open connections too.
func (h *Host) Drop(on bool) {
	h.t.Helper()
	if on == h.dropOn {
		return
	}
	verb := "del"
	if on {
		verb = "add"
	}
	if _, err := ip("-n %s route %s blackhole %s/32", h.ns, verb, h.Outer); err != nil {
		h.t.Fatal(err)
	}
	h.dropOn = on
}

// Listen listens on the host; an empty or zero address part of addr is the
// host's own. It is what NewBackendOn and NewLinesOn take:
//
//	func() (net.Listener, error) { return h.Listen("tcp", ":80") }
func (h *Host) Listen(network, addr string) (ln net.Listener, err error) {
	if strings.HasPrefix(addr, ":") {
		addr = h.IP + addr
	}
	inErr := h.inside(func() { ln, err = net.Listen(network, addr) })
	if inErr != nil {
		return nil, inErr
	}
	return ln, err
}

// ListenPacket is Listen for datagrams.
func (h *Host) ListenPacket(network, addr string) (c net.PacketConn, err error) {
	if strings.HasPrefix(addr, ":") {
		addr = h.IP + addr
	}
	inErr := h.inside(func() { c, err = net.ListenPacket(network, addr) })
	if inErr != nil {
		return nil, inErr
	}
	return c, err
}

// inside runs f on a thread that is in the namespace: a socket belongs to the
// namespace of the thread that made it.
func (h *Host) inside(f func()) error {
	ns, err := os.Open("/run/netns/" + h.ns)
	if err != nil {
		return err
	}
	defer ns.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		result <- err
	}()
	return <-result
}

// Start runs a program on the host until the end of the test.
func (h *Host) Start(name string, cmd *exec.Cmd) *Process {
	h.t.Helper()
	Need(h.t, "ip")
	args := append([]string{"ip", "netns", "exec", h.ns, cmd.Path}, cmd.Args[1:]...)
	path, err := exec.LookPath("ip")
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Path, cmd.Args = path, args
	p, err := start(h.t, spec{name: name, cmd: cmd})
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}
