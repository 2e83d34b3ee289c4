// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienthello

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type vector struct {
	Name  string
	Steps []struct {
		ChunksHex []string `json:"chunks_hex"`
	}
	Expected struct {
		Result     string
		ServerName string `json:"server_name"`
		ALPN       string
		Protocol   string
		Status     int
	}
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/preread.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func (v vector) chunks(t testing.TB) [][]byte {
	var out [][]byte
	for _, s := range v.Steps {
		for _, c := range s.ChunksHex {
			b, err := hex.DecodeString(c)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
	}
	return out
}

// latin1 is how the recorded data writes bytes that are not ASCII.
func latin1(s string) string {
	r := make([]rune, len(s))
	for i := range len(s) {
		r[i] = rune(s[i])
	}
	return string(r)
}

const bufferSize = 16 << 10 // preread_buffer_size of the recorded sessions

func TestRecordedPrereadSessions(t *testing.T) {
	vs := vectors(t)
	if len(vs) != 60 {
		t.Fatalf("%d recorded sessions, want 60", len(vs))
	}
	for _, v := range vs {
		t.Run(v.Name, func(t *testing.T) {
			var p Parser
			var all []byte
			info, verdict := Info{}, NeedMore
			for _, c := range v.chunks(t) {
				all = append(all, c...)
				info, verdict = p.Feed(all[:min(len(all), bufferSize)])
			}
			full := verdict == NeedMore && len(all) >= bufferSize
			if want := v.Expected.Result == "decided"; want != (verdict != NeedMore) {
				t.Fatalf("Feed() verdict = %v, but the session was %s", verdict, v.Expected.Result)
			}
			if full != (v.Expected.Status == 400) {
				t.Fatalf("buffer full = %v, but the status was %d", full, v.Expected.Status)
			}
			got := []string{latin1(info.ServerName), latin1(info.ALPNProtocols()), info.Protocol}
			want := []string{v.Expected.ServerName, v.Expected.ALPN, v.Expected.Protocol}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("server name, ALPN, protocol differ (-want +got):\n%s", diff)
			}
		})
	}
}

func whole(b []byte) (Info, Verdict) {
	var p Parser
	return p.Feed(b)
}

func TestAHelloSplitAtEveryByteGivesTheSame(t *testing.T) {
	for _, v := range vectors(t) {
		all := bytes.Join(v.chunks(t), nil)
		all = all[:min(len(all), bufferSize)]
		wantInfo, want := whole(all)
		// Once one byte more with each call, and cut in two at each byte.
		var p Parser
		for i := range len(all) + 1 {
			p.Feed(all[:i])
		}
		if info, got := p.Feed(all); got != want || !cmp.Equal(info, wantInfo) {
			t.Errorf("%s: byte by byte Feed() = %+v, %v, want %+v, %v", v.Name, info, got, wantInfo, want)
		}
		for i := range len(all) + 1 {
			var p Parser
			p.Feed(all[:i])
			if info, got := p.Feed(all); got != want || !cmp.Equal(info, wantInfo) {
				t.Fatalf("%s: cut at %d: Feed() = %+v, %v, want %+v, %v", v.Name, i, info, got, wantInfo, want)
			}
		}
	}
}

// records cuts the handshake message of a one-record hello into two records.
func records(hello []byte, at int) []byte {
	msg := hello[recordHeader:]
	var out []byte
	for _, part := range [][]byte{msg[:at], msg[at:]} {
		out = append(out, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// cryptoTLSHello is what Go's own TLS client sends.
func cryptoTLSHello(t testing.TB) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: "db.example.org", NextProtos: []string{"h2", "http/1.1"}}).Handshake()
		client.Close()
	}()
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestAHelloSplitOverRecordsAtEveryByteGivesTheSame(t *testing.T) {
	hello := cryptoTLSHello(t)
	want := Info{ServerName: "db.example.org", ALPN: []string{"h2", "http/1.1"}, Protocol: "TLSv1.3"}
	for at := range len(hello) - recordHeader + 1 {
		info, verdict := whole(records(hello, at))
		if verdict != Decided || !cmp.Equal(info, want) {
			t.Fatalf("records cut at %d: Feed() = %+v, %v, want %+v, %v", at, info, verdict, want, Decided)
		}
	}
}

func TestNoPrefixOfAHelloIsDecided(t *testing.T) {
	hello := cryptoTLSHello(t)
	for i := range hello {
		if _, v := whole(hello[:i]); v != NeedMore {
			t.Fatalf("Feed() of %d of %d bytes = %v, want %v", i, len(hello), v, NeedMore)
		}
	}
}

func TestTheVerdictStays(t *testing.T) {
	hello := cryptoTLSHello(t)
	var p Parser
	first, v := p.Feed(hello)
	again, v2 := p.Feed(append(bytes.Clone(hello), "GET /"...))
	if v != Decided || v2 != Decided || !cmp.Equal(first, again) {
		t.Errorf("Feed() after the verdict = %+v, %v, want %+v, %v", again, v2, first, v)
	}
}

func TestValuesDoNotAliasTheInput(t *testing.T) {
	hello := cryptoTLSHello(t)
	info, _ := whole(hello)
	clear(hello)
	if info.ServerName != "db.example.org" || info.ALPNProtocols() != "h2,http/1.1" {
		t.Errorf("after the buffer was reused Info = %+v", info)
	}
}

func FuzzFeed(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(bytes.Join(v.chunks(f), nil), uint16(7))
	}
	f.Add(cryptoTLSHello(f), uint16(100))
	f.Fuzz(func(t *testing.T, b []byte, seed uint16) {
		wantInfo, want := whole(b)
		if want != Decided && (wantInfo.ServerName != "" || wantInfo.ALPN != nil || wantInfo.Protocol != "") {
			t.Fatalf("%v with %+v", want, wantInfo)
		}
		if n := len(wantInfo.ServerName) + len(wantInfo.ALPNProtocols()); n > len(b) {
			t.Fatalf("%d bytes of values from %d bytes", n, len(b))
		}
		var p Parser
		state := uint32(seed) | 1
		for i := 0; i < len(b); {
			state = state*1664525 + 1013904223
			i = min(len(b), i+1+int(state>>24)%61)
			info, v := p.Feed(b[:i])
			if v != NeedMore && (v != want || !cmp.Equal(info, wantInfo)) {
				t.Fatalf("first %d bytes: %+v, %v; whole: %+v, %v", i, info, v, wantInfo, want)
			}
			if cap(p.hello.field) > 2*len(b)+64 {
				t.Fatalf("%d bytes held for %d fed", cap(p.hello.field), len(b))
			}
		}
		if _, v := p.Feed(b); v != want {
			t.Fatalf("in pieces %v, whole %v", v, want)
		}
	})
}

func BenchmarkFeedOneRecord(b *testing.B) {
	hello := cryptoTLSHello(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(hello)))
	for b.Loop() {
		var p Parser
		if _, v := p.Feed(hello); v != Decided {
			b.Fatal(v)
		}
	}
}

func BenchmarkFeedByteByByte(b *testing.B) {
	hello := cryptoTLSHello(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(hello)))
	for b.Loop() {
		var p Parser
		for i := range len(hello) + 1 {
			p.Feed(hello[:i])
		}
	}
}
