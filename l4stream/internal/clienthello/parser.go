// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienthello

import "strings"

// Info is what a hello said. Everything in it comes from the client and was
// not checked: names may hold any byte.
type Info struct {
	// ServerName is the first host name of the server_name extension.
	ServerName string
	// ALPN lists the application protocols in the client's order.
	ALPN []string
	// Protocol is SSLv2, SSLv3, TLSv1, TLSv1.1, TLSv1.2, TLSv1.3, or empty for
	// a version that has no name.
	Protocol string
}

// ALPNProtocols returns the application protocols joined by commas, as nginx's
// $ssl_preread_alpn_protocols.
func (i Info) ALPNProtocols() string { return strings.Join(i.ALPN, ",") }

// Verdict is what is known after the bytes fed so far.
type Verdict uint8

const (
	// NeedMore: the bytes so far may be the beginning of a hello.
	NeedMore Verdict = iota
	// Decided: a whole hello was read.
	Decided
	// NotTLS: this is not TLS, or the hello is malformed. The Info is empty.
	NotTLS
)

func (v Verdict) String() string {
	return [...]string{"need more", "decided", "not TLS"}[v]
}

const (
	recordHeader    = 5
	recordHandshake = 0x16
)

// Parser reads one hello. The zero value is ready. It must not be used from
// several goroutines at once.
type Parser struct {
	consumed int // bytes of the input that need not be looked at again
	verdict  Verdict
	info     Info
	hello    message
}

// Feed looks at the bytes peeked so far. Each call gives all bytes from the
// first one on: the input of the last call and what came since. After a
// verdict other than NeedMore further calls return the same.
func (p *Parser) Feed(peeked []byte) (Info, Verdict) {
	for p.verdict == NeedMore && len(peeked)-p.consumed >= recordHeader {
		rec := peeked[p.consumed:]
		if p.consumed == 0 && isSSLv2(rec) {
			p.info = Info{Protocol: protocolName(rec[3], rec[4])}
			p.verdict = Decided
			break
		}
		if rec[0] != recordHandshake || rec[1] != 3 {
			p.fail()
			break
		}
		end := recordHeader + (int(rec[3])<<8 | int(rec[4]))
		if len(rec) < end {
			break
		}
		p.consumed += end
		switch p.hello.feed(rec[recordHeader:end]) {
		case Decided:
			p.info, p.verdict = p.hello.info(), Decided
			p.hello = message{}
		case NotTLS:
			p.fail()
		}
	}
	return p.info, p.verdict
}

func (p *Parser) fail() {
	p.info, p.hello, p.verdict = Info{}, message{}, NotTLS
}

// isSSLv2 reports whether five bytes begin a hello in the format of SSLv2,
// which old clients used to offer newer versions too: a two byte length with
// the high bit set, the type of a hello, a version.
func isSSLv2(b []byte) bool {
	return b[0]&0x80 != 0 && b[2] == 1 && (b[3] == 0 || b[3] == 3)
}

func protocolName(major, minor byte) string {
	switch {
	case major == 0 && minor == 2:
		return "SSLv2"
	case major != 3:
		return ""
	}
	switch minor {
	case 0:
		return "SSLv3"
	case 1:
		return "TLSv1"
	case 2:
		return "TLSv1.1"
	case 3:
		return "TLSv1.2"
	case 4:
		return "TLSv1.3"
	}
	return ""
}
