// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Types of TLVs and of the sub-TLVs of tlvSSL.
const (
	tlvALPN      = 0x01
	tlvAuthority = 0x02
	tlvCRC32C    = 0x03
	tlvUniqueID  = 0x05
	tlvSSL       = 0x20
	tlvNetNS     = 0x30

	sslVersion = 0x21
	sslCN      = 0x22
	sslCipher  = 0x23
	sslSigAlg  = 0x24
	sslKeyAlg  = 0x25

	// sslFixed is the length of the flags and the result of verification
	// before the sub-TLVs.
	sslFixed = 5
)

var tlvNames = map[string]byte{
	"alpn": tlvALPN, "authority": tlvAuthority, "unique_id": tlvUniqueID,
	"ssl": tlvSSL, "netns": tlvNetNS,
}

var sslNames = map[string]byte{
	"version": sslVersion, "cn": sslCN, "cipher": sslCipher,
	"sig_alg": sslSigAlg, "key_alg": sslKeyAlg,
}

// TLVName says which TLV is meant: what follows $proxy_protocol_tlv_ in nginx.
type TLVName struct {
	typ    byte
	inSSL  bool
	verify bool
}

// ParseTLVName understands alpn, authority, unique_id, ssl, netns and 0xHEX,
// and within the ssl TLV ssl_verify, ssl_version, ssl_cn, ssl_cipher,
// ssl_sig_alg, ssl_key_alg and ssl_0xHEX. A number may have any count of
// leading zeros.
func ParseTLVName(name string) (TLVName, error) {
	sub, inSSL := strings.CutPrefix(name, "ssl_")
	known := tlvNames
	if inSSL {
		known = sslNames
		if sub == "verify" {
			return TLVName{inSSL: true, verify: true}, nil
		}
	}
	if typ, ok := known[sub]; ok {
		return TLVName{typ: typ, inSSL: inSSL}, nil
	}
	if digits, ok := strings.CutPrefix(sub, "0x"); ok {
		n, err := strconv.ParseUint(digits, 16, 8) // leading zeros are no fault
		if err == nil {
			return TLVName{typ: byte(n), inSSL: inSSL}, nil
		}
	}
	return TLVName{}, fmt.Errorf("proxyproto: unknown TLV %q: want alpn, authority, unique_id, ssl, netns, 0xHEX or ssl_NAME", name)
}

// TLV returns the value of the first TLV of that name: raw bytes, which may
// hold zeros, but for ssl_verify, a decimal number. False: there is none, or
// the list is broken before it.
func (h *Header) TLV(name TLVName) (string, bool) {
	if !name.inSSL {
		v, ok := findTLV(h.TLVs, name.typ)
		return string(v), ok
	}
	ssl, ok := findTLV(h.TLVs, tlvSSL)
	if !ok || len(ssl) < sslFixed {
		return "", false
	}
	if name.verify {
		return strconv.FormatUint(uint64(binary.BigEndian.Uint32(ssl[1:])), 10), true
	}
	v, ok := findTLV(ssl[sslFixed:], name.typ)
	return string(v), ok
}

func findTLV(b []byte, typ byte) ([]byte, bool) {
	for len(b) >= 3 {
		n := 3 + int(binary.BigEndian.Uint16(b[1:]))
		if n > len(b) {
			return nil, false
		}
		if b[0] == typ {
			return b[3:n], true
		}
		b = b[n:]
	}
	return nil, false
}

func appendTLV(b []byte, typ byte, value string) []byte {
	b = append(b, typ)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}
