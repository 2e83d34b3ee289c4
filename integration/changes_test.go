// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echoing is an echo server for stream sessions.
func echoing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

// echoed sends a line over an open connection now and then, until stop, and
// counts the lines that came back.
func echoed(t *testing.T, c net.Conn, r *bufio.Reader, stop <-chan struct{}) (lines int) {
	for {
		if _, err := fmt.Fprintf(c, "line %d\n", lines); err != nil {
			t.Errorf("an open connection broke: %v", err)
			return lines
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if got, err := r.ReadString('\n'); err != nil || got != fmt.Sprintf("line %d\n", lines) {
			t.Errorf("an open connection echoed %q, %v", got, err)
			return lines
		}
		lines++
		select {
		case <-stop:
			return lines
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestManyChangesASecondDropNothing changes a group a thousand times a second, or
// a hundred with the race detector, while clients ask and a WebSocket and a
// stream session are open.
func TestManyChangesASecondDropNothing(t *testing.T) {
	rate, length, clients := 1000, 10*time.Second, 64
	if raceDetector {
		rate, length, clients = 100, 3*time.Second, 16
	}
	b := make([]string, 10)
	for i := range b {
		b[i] = newMortal(t).addr
	}
	p := serve(t, group("app", b[0]+" id=fixed weight=2", b[1]+" id=other", "keepalive 32")+group("db", echoing(t)+" id=db", echoing(t)+" id=db2")+
		"\tlog {\n\t\tlevel WARN\n\t}\n\tstream {\n\t\tserver 127.0.0.1:{{port \"stream\"}} {\n\t\t\tproxy_pass db\n\t\t}\n\t}\n", "\tproxy_pass app")
	stop := make(chan struct{})
	var wg sync.WaitGroup

	socket, err := net.Dial("tcp", p.Addr("front"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	fmt.Fprint(socket, "GET /socket/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(socket)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("upgrade: %v, %v", res, err)
	}
	session, err := net.Dial("tcp", p.Addr("stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	wg.Go(func() { echoed(t, socket, r, stop) })
	wg.Go(func() { echoed(t, session, bufio.NewReader(session), stop) })

	var asked, failed atomic.Int64
	for range clients {
		wg.Go(func() {
			client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond): // a client that waits for nothing takes all there is
				}
				res, err := client.Get(p.URL("front") + "/")
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if asked.Add(1); err != nil || res.StatusCode != 200 {
					if failed.Add(1) < 5 {
						t.Errorf("request: %v, %v", res, err)
					}
				}
			}
		})
	}
	changes := p.storm(b[2:], rate, length)
	close(stop)
	wg.Wait()
	socket.Close()
	session.Close()
	t.Logf("%d changes of %d a second in %v beside %d requests of %d clients", changes, rate, length, asked.Load(), clients)
	if want := int(float64(rate) * length.Seconds()); changes < want*8/10 {
		t.Logf("the machine was too busy for %d changes", want)
	}
	p.waitConns(0)

	// Shares follow the weights from the first request on, within one in a hundred,
	// and once the current weights have settled each cycle has exactly its own.
	for i, weight := range []int{3, 4, 5} {
		p.change(201, "POST", "/upstream/groups/app/servers", fmt.Sprintf(`{"id":"y%d","address":%q,"weight":%d}`, i, b[2+i], weight))
	}
	const cycle = 2 + 1 + 3 + 4 + 5
	p.shares(100, cycle, 100*cycle/100)
	for range 5 {
		p.shares(1, cycle, 0)
	}
}

// shares makes requests for so many cycles, one after the other, and checks what
// each server has of them.
func (p *proxy) shares(cycles, cycle, tolerance int) {
	p.t.Helper()
	p.change(204, "POST", "/upstream/groups/app/reset", "")
	c := p.dial()
	for range cycles * cycle {
		if res, err := c.Do("GET", "/", nil, nil); err != nil || res.Status != 200 {
			p.t.Fatalf("request: %s, %v", res.Line, err)
		}
	}
	for _, s := range p.servers("app") {
		if off := s.State.Picks - cycles*s.Weight; max(off, -off) > tolerance {
			p.t.Errorf("server %s of weight %d has %d of %d requests, want %d, give or take %d",
				s.ID, s.Weight, s.State.Picks, cycles*cycle, cycles*s.Weight, tolerance)
		}
	}
}

// storm makes so many changes a second for that long and leaves the servers as
// they were.
func (p *proxy) storm(addresses []string, rate int, length time.Duration) int {
	workers := len(addresses)
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wg.Go(func() {
			id, there := fmt.Sprintf("x%d", w), false
			path := "/upstream/groups/app/servers"
			call := func(method, path, body string, want int) {
				status, answer, err := p.Admin(method, path, []byte(body), "Content-Type", "application/json")
				if err != nil || status != want {
					p.t.Errorf("%s %s %s: %d, %v, %s", method, path, body, status, err, answer)
				}
				done.Add(1)
			}
			for n := 0; time.Since(start) < length || there; n++ {
				// Not faster than asked for: the nth change of this worker has its time.
				if wait := time.Until(start.Add(time.Duration(n) * time.Second * time.Duration(workers) / time.Duration(rate))); wait > 0 {
					time.Sleep(wait)
				}
				switch k := rand.IntN(10); {
				case !there:
					call("POST", path, fmt.Sprintf(`{"id":%q,"address":%q}`, id, addresses[w]), 201)
					there = true
				case k < 2 || time.Since(start) >= length:
					call("DELETE", path+"/"+id, "", 200)
					there = false
				case k < 6:
					call("PATCH", path+"/"+id, fmt.Sprintf(`{"weight":%d}`, 1+rand.IntN(5)), 200)
				case k < 8:
					call("PATCH", path+"/"+id, `{"drain":true}`, 200)
				default:
					call("PATCH", path+"/"+id, `{"drain":null,"down":null}`, 200)
				}
			}
		})
	}
	wg.Wait()
	return int(done.Load())
}
