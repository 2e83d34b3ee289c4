// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

// placeholderPrefix is that of all placeholders of a session; the rest is the
// name of nginx's variable.
const placeholderPrefix = "stream."

// tlvPrefix is that of the variables of a PROXY header's TLVs.
const tlvPrefix = "proxy_protocol_tlv_"

var hostname = func() string { h, _ := os.Hostname(); return strings.ToLower(h) }()

// variables are nginx's variables of a session.
var variables = map[string]func(*Session) string{
	"remote_addr":        func(s *Session) string { return addrText(s.client) },
	"remote_port":        func(s *Session) string { return portOf(s.client) },
	"binary_remote_addr": func(s *Session) string { return binary(s.client) },
	"realip_remote_addr": func(s *Session) string { return addrText(s.peer) },
	"realip_remote_port": func(s *Session) string { return portOf(s.peer) },
	"server_addr":        func(s *Session) string { return localText(s.local) },
	"server_port":        func(s *Session) string { return portOf(s.local) },
	"connection":         func(s *Session) string { return strconv.FormatUint(s.number, 10) },
	"server_name":        func(s *Session) string { return s.server.firstName() },
	"protocol":           (*Session).Protocol,
	"status":             func(s *Session) string { return statusText(s.status) },
	"bytes_received":     func(s *Session) string { return strconv.FormatInt(s.received.Load(), 10) },
	"bytes_sent":         func(s *Session) string { return strconv.FormatInt(s.sent.Load(), 10) },
	"session_time":       func(s *Session) string { return seconds(s.age()) },
	"hostname":           func(*Session) string { return hostname },
	"pid":                func(*Session) string { return strconv.Itoa(os.Getpid()) },
	"msec":               func(s *Session) string { return strconv.FormatFloat(float64(s.now().UnixMilli())/1000, 'f', 3, 64) },
	"time_iso8601":       func(s *Session) string { return s.now().Format("2006-01-02T15:04:05-07:00") },
	"time_local":         func(s *Session) string { return s.now().Format("02/Jan/2006:15:04:05 -0700") },
	"limit_conn_status":  func(s *Session) string { return s.limit },

	"proxy_protocol_addr":        func(s *Session) string { return s.headerText(func(h *proxyproto.Header) string { return h.SrcAddr }) },
	"proxy_protocol_port":        func(s *Session) string { return s.headerText(srcPort) },
	"proxy_protocol_server_addr": func(s *Session) string { return s.headerText(func(h *proxyproto.Header) string { return h.DstAddr }) },
	"proxy_protocol_server_port": func(s *Session) string { return s.headerText(dstPort) },

	"ssl_preread_server_name":    func(s *Session) string { return s.helloText(0) },
	"ssl_preread_alpn_protocols": func(s *Session) string { return s.helloText(1) },
	"ssl_preread_protocol":       func(s *Session) string { return s.helloText(2) },

	"ssl_protocol":       func(s *Session) string { return s.tlsText(tlsVersion) },
	"ssl_cipher":         func(s *Session) string { return s.tlsText(tlsCipher) },
	"ssl_server_name":    func(s *Session) string { return s.tlsText(tlsServerName) },
	"ssl_alpn_protocol":  func(s *Session) string { return s.tlsText(tlsProtocol) },
	"ssl_session_reused": func(s *Session) string { return s.tlsText(tlsReused) },
	"ssl_client_s_dn":    func(s *Session) string { return s.tlsText(tlsClientDN) },
	"ssl_client_cert":    func(s *Session) string { return s.tlsText(tlsClientCert) },
	"ssl_client_verify":  func(s *Session) string { return s.tlsText(tlsClientVerify) },

	"upstream_addr":            func(s *Session) string { return s.list(func(t *try) string { return t.addr }) },
	"upstream_connect_time":    func(s *Session) string { return s.list(func(t *try) string { return seconds(t.connect) }) },
	"upstream_first_byte_time": func(s *Session) string { return s.list(firstByteTime) },
	"upstream_session_time":    func(s *Session) string { return s.list(func(t *try) string { return seconds(t.sessionTime()) }) },
	"upstream_bytes_sent": func(s *Session) string {
		return s.list(func(t *try) string { return strconv.FormatInt(t.sent.Load(), 10) })
	},
	"upstream_bytes_received": func(s *Session) string {
		return s.list(func(t *try) string { return strconv.FormatInt(t.received.Load(), 10) })
	},
}

// placeholder implements caddy.ReplacerFunc.
func (s *Session) placeholder(key string) (any, bool) {
	name, ok := strings.CutPrefix(key, placeholderPrefix)
	if !ok {
		return nil, false
	}
	if f := variables[name]; f != nil {
		return f(s), true
	}
	if name, ok := strings.CutPrefix(name, "vars."); ok {
		if value := s.vars[name]; value != nil {
			return value(), true
		}
		return "", true
	}
	if name, ok := strings.CutPrefix(name, tlvPrefix); ok {
		return s.tlv(name), true
	}
	return nil, false
}

func (s *Session) now() time.Time {
	if s.ended.IsZero() {
		return time.Now()
	}
	return s.ended
}

func (s *Session) age() time.Duration { return max(s.now().Sub(s.start), 1) }

// addrText prints a client's address as nginx does: "unix:" for a unix socket.
func addrText(e proxyproto.Endpoint) string {
	if !e.Addr.IsValid() {
		return "unix:"
	}
	return e.Addr.Addr().String()
}

func localText(e proxyproto.Endpoint) string {
	if !e.Addr.IsValid() {
		return "unix:" + e.Path
	}
	return e.Addr.Addr().String()
}

func binary(e proxyproto.Endpoint) string {
	if !e.Addr.IsValid() {
		return ""
	}
	return string(e.Addr.Addr().AsSlice())
}

func statusText(status int) string {
	if status == 0 {
		return "000"
	}
	return strconv.Itoa(status)
}

func (s *Session) headerText(f func(*proxyproto.Header) string) string {
	if s.header == nil || !s.header.HasAddresses {
		return ""
	}
	return f(s.header)
}

func srcPort(h *proxyproto.Header) string { return strconv.Itoa(int(h.SrcPort)) }
func dstPort(h *proxyproto.Header) string { return strconv.Itoa(int(h.DstPort)) }

func (s *Session) tlv(name string) string {
	if s.header == nil {
		return ""
	}
	tlv, err := proxyproto.ParseTLVName(name)
	if err != nil {
		return ""
	}
	value, _ := s.header.TLV(tlv)
	return value
}

func (s *Session) helloText(field int) string {
	if s.hello == nil {
		return ""
	}
	return [...]string{s.hello.ServerName, s.hello.ALPNProtocols(), s.hello.Protocol}[field]
}

// list joins a value of each try as nginx does.
func (s *Session) list(format func(*try) string) string {
	values := make([]string, len(s.tries))
	for i, t := range s.tries {
		values[i] = format(t)
	}
	return strings.Join(values, ", ")
}

func (t *try) sessionTime() time.Duration {
	if t.end > 0 {
		return t.end
	}
	return max(time.Since(t.started), 1)
}

func firstByteTime(t *try) string { return seconds(time.Duration(t.firstByte.Load())) }

// seconds prints a duration as nginx does; one that was not reached is "-".
func seconds(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return strconv.FormatFloat(d.Truncate(time.Millisecond).Seconds(), 'f', 3, 64)
}

// escape makes text of the network printable, for logs.
func escape(s string) string {
	for i := range len(s) {
		if s[i] < 32 || s[i] > 126 {
			return hex.EncodeToString([]byte(s))
		}
	}
	return s
}
