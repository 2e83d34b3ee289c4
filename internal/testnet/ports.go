// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"
)

// Reservation is a TCP port of 127.0.0.1 that nobody listens on: connecting to
// it is refused. On Linux the kernel keeps it from everyone who does not ask
// for it by number, while a server may still listen on it; elsewhere it is
// merely a port that was free a moment ago.
type Reservation struct {
	Port  int
	close func()
}

// Reserve chooses a free port and keeps it until the end of the test.
func Reserve(t testing.TB) *Reservation {
	t.Helper()
	port, release, err := reserve(0)
	if err != nil {
		t.Fatalf("reserving a port: %v", err)
	}
	t.Cleanup(release)
	return &Reservation{Port: port, close: release}
}

// Addr is the port with its address.
func (r *Reservation) Addr() string { return loopback(r.Port) }

// ReserveTwo keeps two ports side by side until the end of the test, and returns
// the lower one. They are none of those that systems choose by themselves, of
// which every second may be some connection's.
func ReserveTwo(t testing.TB) (low int) {
	t.Helper()
	for range 1000 {
		low := firstOwnPort + rand.IntN(ownPorts-1)
		_, releaseLow, err := reserve(low)
		if err != nil {
			continue
		}
		_, releaseHigh, err := reserve(low + 1)
		if err != nil {
			releaseLow()
			continue
		}
		t.Cleanup(func() { releaseLow(); releaseHigh() })
		return low
	}
	t.Fatal("no two free ports side by side were found")
	return 0
}

// RefusedAddr is an address of 127.0.0.1 where connections are refused.
func RefusedAddr(t testing.TB) string {
	t.Helper()
	return Reserve(t).Addr()
}

// FreeUDPPort is a UDP port of 127.0.0.1 on which nobody receives. Until the end
// of the test it is given to nobody else here, on Linux to no other process that
// asks here either; and being none of those that systems choose by themselves,
// it stays free until a server asks for it by number.
func FreeUDPPort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstOwnPort + rand.IntN(ownPorts)
		if !keepUDPPort(t, port) {
			continue
		}
		if c, err := net.ListenPacket("udp4", loopback(port)); err == nil {
			c.Close()
			return port
		}
	}
	t.Fatal("no free UDP port was found")
	return 0
}

// The ports that FreeUDPPort and ReserveTwo choose from lie below those that
// systems choose from: 32768 and up on Linux, 49152 and up elsewhere.
const (
	firstOwnPort = 20000
	ownPorts     = 12000
)

var keptUDPPorts sync.Map

// keepUDPPort reports whether nobody else has chosen the port.
func keepUDPPort(t testing.TB, port int) bool {
	if _, taken := keptUDPPorts.LoadOrStore(port, true); taken {
		return false
	}
	release, ok := lockUDPPort(port)
	if !ok {
		keptUDPPorts.Delete(port)
		return false
	}
	t.Cleanup(func() { release(); keptUDPPorts.Delete(port) })
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// portSet is the named ports of one configuration.
type portSet struct {
	ports map[string]*Reservation
	udp   map[string]int
}

func newPortSet() *portSet {
	return &portSet{ports: map[string]*Reservation{}, udp: map[string]int{}}
}

// get is the port called name, chosen now if it is new.
func (s *portSet) get(t testing.TB, name string) int {
	if _, ok := s.ports[name]; !ok {
		s.ports[name] = Reserve(t)
	}
	return s.ports[name].Port
}

func (s *portSet) getUDP(t testing.TB, name string) int {
	if _, ok := s.udp[name]; !ok {
		s.udp[name] = FreeUDPPort(t)
	}
	return s.udp[name]
}

// expand executes a configuration's template. added are the names of ports
// that were not in the set before.
func (s *portSet) expand(t testing.TB, config string, data any) (text string, added []string) {
	t.Helper()
	note := func(name string) {
		if s.ports[name] == nil && s.udp[name] == 0 {
			added = append(added, name)
		}
	}
	port := func(name string) int { note(name); return s.get(t, name) }
	udp := func(name string) int { note(name); return s.getUDP(t, name) }
	tmpl, err := template.New("config").Option("missingkey=error").Funcs(template.FuncMap{
		"port":    port,
		"addr":    func(name string) string { return loopback(port(name)) },
		"udpport": udp,
		"udpaddr": func(name string) string { return loopback(udp(name)) },
	}).Parse(config)
	if err != nil {
		t.Fatalf("configuration template: %v", err)
	}
	var b strings.Builder
	if err := tmpl.Execute(&b, data); err != nil {
		t.Fatalf("configuration template: %v", err)
	}
	return b.String(), added
}

// forget gives up ports, so that the next expand chooses others.
func (s *portSet) forget(names []string) {
	for _, n := range names {
		if r := s.ports[n]; r != nil {
			r.close()
		}
		delete(s.ports, n)
		delete(s.udp, n)
	}
}

// addr is the address of a port that a configuration has named.
func (s *portSet) addr(name string) (string, error) {
	if r := s.ports[name]; r != nil {
		return r.Addr(), nil
	}
	if p := s.udp[name]; p != 0 {
		return loopback(p), nil
	}
	return "", fmt.Errorf("no configuration has named a port %q", name)
}

// portTaken reports whether text or err says that somebody else has a port.
func portTaken(text string, err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || strings.Contains(strings.ToLower(text), "address already in use")
}

// whileInUse calls listen again for as long as the address is in use, for five
// seconds at most: a process that somebody is starting at this moment has a copy of
// every socket until it becomes another program, also of one just closed here.
func whileInUse(listen func() error) (err error) {
	Poll(5*time.Second, func() bool {
		err = listen()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}
