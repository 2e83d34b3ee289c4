// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersion1Lines(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Header
		err  error
	}{
		{"PROXY TCP4 192.0.2.1 198.51.100.7 1 65535\r\n", Header{Version: 1, HasAddresses: true, SrcAddr: "192.0.2.1", DstAddr: "198.51.100.7", SrcPort: 1, DstPort: 65535}, nil},
		{"PROXY TCP6 2001:DB8::A ::1 0 2\r\n", Header{Version: 1, HasAddresses: true, SrcAddr: "2001:DB8::A", DstAddr: "::1", DstPort: 2}, nil},
		{"PROXY UNKNOWN\r\n", Header{Version: 1}, nil},
		{"PROXY UNKNOWN a b c\r\n", Header{Version: 1}, nil},
		{"PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n", Header{}, ErrInvalid},
		{"PROXY TCP4 192.0.2.1 198.51.100.7 1 \r\n", Header{}, ErrInvalid},
		{"PROXY TCP4 192.0.2.1 198.51.100.7 -1 2\r\n", Header{}, ErrInvalid},
		{"PROXY TCP4 host.example 198.51.100.7 1 2\r\n", Header{}, ErrInvalid},
		{"PROXY TCP5 192.0.2.1 198.51.100.7 1 2\r\n", Header{}, ErrInvalid},
		{"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n", Header{}, ErrInvalid},
		{"PROXY TCP4 192.0.2.1 198.51.100.7 1 2\rX", Header{}, ErrInvalid},
		{"PROXY TCP4 192.0.2.1 198.51.100.7 1 2\n", Header{}, ErrInvalid},
		{"proxy TCP4 192.0.2.1 198.51.100.7 1 2\r\n", Header{}, ErrInvalid},
		{"GET / HTTP/1.1\r\n", Header{}, ErrInvalid},
		{"", Header{}, ErrIncomplete},
		{"PROXY UNKNOWN" + strings.Repeat("x", MaxHeader), Header{}, ErrTooLarge},
		{"PROXY TCP4 " + strings.Repeat("1", MaxHeader), Header{}, ErrTooLarge},
	} {
		got, n, err := Parse([]byte(c.in + "rest"))
		if c.in == "" {
			got, n, err = Parse(nil)
		}
		if !errors.Is(err, c.err) || !cmp.Equal(got, c.want) {
			t.Errorf("Parse(%.60q) = %+v, %v, want %+v, %v", c.in, got, err, c.want, c.err)
		}
		if err == nil && n != len(c.in) {
			t.Errorf("Parse(%.60q) length = %d, want %d", c.in, n, len(c.in))
		}
	}
}

// v2 builds a header around a body.
func v2(verCmd, famTrans byte, body string) []byte {
	b := append([]byte(signature), verCmd, famTrans, byte(len(body)>>8), byte(len(body)))
	return append(b, body...)
}

const tcp4Body = "\xc0\x00\x02\x01\xc6\x33\x64\x07\x00\x01\x00\x02"

func TestVersion2Headers(t *testing.T) {
	with := Header{Version: 2, HasAddresses: true, SrcAddr: "192.0.2.1", DstAddr: "198.51.100.7", SrcPort: 1, DstPort: 2, TLVs: []byte{}}
	for _, c := range []struct {
		name string
		in   []byte
		want Header
		err  error
	}{
		{"tcp4", v2(0x21, 0x11, tcp4Body), with, nil},
		{"local with addresses", v2(0x20, 0x11, tcp4Body), Header{Version: 2}, nil},
		{"local without", v2(0x20, 0, ""), Header{Version: 2}, nil},
		{"another command", v2(0x22, 0x11, tcp4Body), Header{Version: 2}, nil},
		{"udp", v2(0x21, 0x12, tcp4Body), Header{Version: 2}, nil},
		{"unix", v2(0x21, 0x31, strings.Repeat("/", 216)), Header{Version: 2}, nil},
		{"addresses cut", v2(0x21, 0x11, tcp4Body[:11]), Header{}, ErrInvalid},
		{"tcp6 too short", v2(0x21, 0x21, tcp4Body), Header{}, ErrInvalid},
		{"version 1", v2(0x11, 0x11, tcp4Body), Header{}, ErrInvalid},
		{"version 3", v2(0x31, 0x11, tcp4Body), Header{}, ErrInvalid},
		{"too large", v2(0x21, 0x11, tcp4Body+strings.Repeat("x", MaxHeader)), Header{}, ErrTooLarge},
		{"largest", v2(0x21, 0x11, tcp4Body+strings.Repeat("x", MaxHeader-16-12)), func() Header {
			h := with
			h.TLVs = []byte(strings.Repeat("x", MaxHeader-16-12))
			return h
		}(), nil},
	} {
		got, n, err := Parse(append(bytes.Clone(c.in), "rest"...))
		if !errors.Is(err, c.err) || !cmp.Equal(got, c.want) {
			t.Errorf("%s: Parse() = %+v, %v, want %+v, %v", c.name, got, err, c.want, c.err)
		}
		if err == nil && n != len(c.in) {
			t.Errorf("%s: Parse() length = %d, want %d", c.name, n, len(c.in))
		}
	}
}

func TestEveryCutHeaderIsIncomplete(t *testing.T) {
	for _, h := range [][]byte{
		[]byte("PROXY TCP4 192.0.2.1 198.51.100.7 1 65535\r\n"),
		[]byte("PROXY UNKNOWN foo\r\n"),
		v2(0x21, 0x11, tcp4Body+"\x04\x00\x01a"),
		v2(0x20, 0, ""),
	} {
		for i := range h {
			if _, _, err := Parse(h[:i]); !errors.Is(err, ErrIncomplete) {
				t.Errorf("Parse(%q) = %v, want %v", h[:i], err, ErrIncomplete)
			}
		}
	}
}

func TestTLVsByName(t *testing.T) {
	ssl := "\x07\x00\x00\x01\x02" + "\x21\x00\x07TLSv1.2" + "\x22\x00\x02me" + "\x23\x00\x01c" + "\x24\x00\x01s" + "\x25\x00\x07RSA2048" + "\x77\x00\x02\x00z"
	tlvs := "\x01\x00\x02h2" + "\x02\x00\x0bexample.org" + "\x05\x00\x02\x00\x01" + "\x30\x00\x02ns" +
		"\x20\x00" + string(rune(len(ssl))) + ssl + "\x02\x00\x05later" + "\xae\x00\x03odd" + "\x04\x00\xffcut"
	h := Header{TLVs: []byte(tlvs)}
	for name, want := range map[string]string{
		"alpn": "h2", "authority": "example.org", "unique_id": "\x00\x01", "netns": "ns", "ssl": ssl,
		"0x1": "h2", "0x0001": "h2", "0xae": "odd", "0x000AE": "odd", "0x4": "", "0x99": "",
		"ssl_verify": "258", "ssl_version": "TLSv1.2", "ssl_cn": "me", "ssl_cipher": "c",
		"ssl_sig_alg": "s", "ssl_key_alg": "RSA2048", "ssl_0x77": "\x00z", "ssl_0x0023": "c", "ssl_0x78": "",
	} {
		n, err := ParseTLVName(name)
		if err != nil {
			t.Errorf("ParseTLVName(%q) = %v", name, err)
			continue
		}
		if got, _ := h.TLV(n); got != want {
			t.Errorf("TLV(%s) = %q, want %q", name, got, want)
		}
	}
	for _, bad := range []string{"", "0x", "0x100", "0xg", "cn", "ssl_", "ssl_alpn", "verify", "0x-1", "ALPN"} {
		if _, err := ParseTLVName(bad); err == nil {
			t.Errorf("ParseTLVName(%q) accepted", bad)
		}
	}
}

func TestEndsOfUDPSessionsAreDatagrams(t *testing.T) {
	c, l := endpoint("127.0.0.1:1"), endpoint("127.0.0.2:2")
	if got := AppendV2(nil, c, l, true, nil)[13]; got != 0x12 {
		t.Errorf("IPv4 family and transport = %#x, want 0x12", got)
	}
	if got := AppendV2(nil, endpoint("[::1]:1"), l, true, nil)[13]; got != 0x22 {
		t.Errorf("mixed family and transport = %#x, want 0x22", got)
	}
}

func TestMappedAddressesOnBothSidesAreIPv4(t *testing.T) {
	got := AppendV2(nil, endpoint("[::ffff:127.0.0.1]:53416"), endpoint("[::ffff:127.0.0.1]:18060"), false, nil)
	const want = "0d0a0d0a000d0a515549540a211100137f0000017f000001d0a8468c030004eea2bf95"
	if hex.EncodeToString(got) != want {
		t.Errorf("AppendV2() = %x, want %s", got, want)
	}
}

func TestEndpointsOfSockets(t *testing.T) {
	for _, c := range []struct {
		in   net.Addr
		want Endpoint
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}, endpoint("192.0.2.1:5")},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 5}, endpoint("[fe80::1]:5")},
		{&net.UDPAddr{IP: net.ParseIP("::1"), Port: 5}, endpoint("[::1]:5")},
		{&net.UnixAddr{Name: "/run/x", Net: "unix"}, Endpoint{Path: "/run/x"}},
		{&net.IPAddr{}, Endpoint{}},
	} {
		if got := EndpointOf(c.in); got != c.want {
			t.Errorf("EndpointOf(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestTLSOfTheClientIsWrittenInOrderAndReadBack(t *testing.T) {
	key := &ecdsa.PublicKey{Curve: elliptic.P256()}
	info := TLSInfoOf(tls.ConnectionState{
		Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		ServerName: "db.example.org", NegotiatedProtocol: "h2",
		PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "client"}}},
		VerifiedChains:   [][]*x509.Certificate{{}},
	}, &x509.Certificate{SignatureAlgorithm: x509.ECDSAWithSHA256, PublicKey: key})
	b := AppendV2([]byte("before"), endpoint("127.0.0.1:1"), endpoint("127.0.0.1:2"), false, info)[len("before"):]
	h, n, err := Parse(b)
	if err != nil || n != len(b) {
		t.Fatalf("Parse() = %d, %v, want %d", n, err, len(b))
	}
	const want = "\x02\x00\x0edb.example.org\x01\x00\x02h2" +
		"\x20\x00\x52\x07\x00\x00\x00\x00" +
		"\x21\x00\x07TLSv1.2\x22\x00\x06client\x23\x00\x1bECDHE-RSA-AES128-GCM-SHA256" +
		"\x24\x00\x11ecdsa-with-SHA256\x25\x00\x05EC256" + "\x03\x00\x04"
	if got := string(h.TLVs[:len(h.TLVs)-4]); got != want {
		t.Errorf("TLVs\n%q, want\n%q", got, want)
	}
	info = TLSInfoOf(tls.ConnectionState{Version: tls.VersionTLS13, DidResume: true,
		PeerCertificates: []*x509.Certificate{{}}}, nil)
	if !info.CertSession || info.CertConn || info.Verified {
		t.Errorf("a resumed session's certificate is in the session only, got %+v", info)
	}
	if b := (&TLSInfo{}).append(nil); string(b) != "\x20\x00\x05\x01\x00\x00\x00\x01" {
		t.Errorf("without a certificate %q", b)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range vectors(f) {
		b, _ := hex.DecodeString(v.Steps[0].SendHex)
		f.Add(b)
	}
	f.Add(AppendV2(nil, endpoint("127.0.0.1:1"), endpoint("[::1]:2"), false, &TLSInfo{CN: "x", Version: "TLSv1.3"}))
	names := []TLVName{}
	for _, n := range []string{"alpn", "ssl", "ssl_verify", "ssl_cn"} {
		name, _ := ParseTLVName(n)
		names = append(names, name)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		if err != nil {
			if n != 0 || !cmp.Equal(h, Header{}) {
				t.Fatalf("%v with %+v, %d", err, h, n)
			}
			return
		}
		if n <= 0 || n > len(b) || n > MaxHeader {
			t.Fatalf("length %d of %d", n, len(b))
		}
		for _, name := range names {
			h.TLV(name)
		}
		again, m, err := Parse(b[:n])
		if err != nil || m != n || !cmp.Equal(again, h) {
			t.Fatalf("the header alone: %+v, %d, %v, want %+v, %d", again, m, err, h, n)
		}
		if _, _, err := Parse(b[:n-1]); err == nil {
			t.Fatal("a cut header is accepted")
		}
		src, ok := h.Source()
		if !ok || src.Addr().Zone() != "" {
			return
		}
		out := AppendV2(nil, Endpoint{Addr: src}, endpoint("127.0.0.1:80"), false, nil)
		back, _, err := Parse(out)
		if got, ok := back.Source(); err != nil || !ok || got.Addr().Unmap() != src.Addr().Unmap() || got.Port() != src.Port() {
			t.Fatalf("written and read back %v, %v, want %v", got, err, src)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	v1 := []byte("PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n")
	b.Run("v1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = Parse(v1)
		}
	})
	h := v2(0x21, 0x11, tcp4Body)
	b.Run("v2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = Parse(h)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	c, l := Endpoint{Addr: netip.MustParseAddrPort("192.0.2.1:56324")}, Endpoint{Addr: netip.MustParseAddrPort("198.51.100.7:443")}
	buf := make([]byte, 0, 256)
	b.Run("v1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendV1(buf[:0], c, l)
		}
	})
	b.Run("v2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendV2(buf[:0], c, l, false, nil)
		}
	})
}
