// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"strconv"
)

// The client flags of the ssl TLV.
const (
	flagTLS         = 1
	flagCertConn    = 2
	flagCertSession = 4
)

// maxTLSText bounds each text, so that the header's length fits its field
// whatever a client sends.
const maxTLSText = 1024

// TLSInfo is what a version 2 header tells of a client's TLS connection. Empty
// texts are left out.
type TLSInfo struct {
	Authority string // the server name the client asked for
	ALPN      string // the protocol that was negotiated
	// CertConn: the client showed a certificate on this connection;
	// CertSession: in the session, which may have been resumed.
	CertConn, CertSession bool
	// Verified: the client's certificate was verified.
	Verified bool
	Version  string // TLSv1.3
	CN       string // of the client's certificate
	Cipher   string // as OpenSSL calls it
	SigAlg   string // of the server's certificate: RSA-SHA256
	KeyAlg   string // of the server's certificate: RSA2048
}

// TLSInfoOf describes a finished handshake. local is the certificate that was
// shown to the client, nil if it is not known.
func TLSInfoOf(cs tls.ConnectionState, local *x509.Certificate) *TLSInfo {
	t := &TLSInfo{
		Authority: cs.ServerName,
		ALPN:      cs.NegotiatedProtocol,
		Version:   versionNames[cs.Version],
		Cipher:    CipherName(cs.CipherSuite),
	}
	if len(cs.PeerCertificates) > 0 {
		t.CertSession, t.CertConn = true, !cs.DidResume
		t.Verified = len(cs.VerifiedChains) > 0
		t.CN = cs.PeerCertificates[0].Subject.CommonName
	}
	if local != nil {
		t.SigAlg = signatureNames[local.SignatureAlgorithm]
		t.KeyAlg = keyAlgorithm(local)
	}
	return t
}

func (t *TLSInfo) append(b []byte) []byte {
	for _, v := range []struct {
		typ  byte
		text string
	}{{tlvAuthority, t.Authority}, {tlvALPN, t.ALPN}} {
		if v.text != "" {
			b = appendTLV(b, v.typ, clip(v.text))
		}
	}
	flags := byte(flagTLS)
	if t.CertConn {
		flags |= flagCertConn
	}
	if t.CertSession {
		flags |= flagCertSession
	}
	verify := uint32(1)
	if t.Verified {
		verify = 0
	}
	b = append(b, tlvSSL, 0, 0)
	start := len(b)
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, verify)
	for _, v := range []struct {
		typ  byte
		text string
	}{{sslVersion, t.Version}, {sslCN, t.CN}, {sslCipher, t.Cipher}, {sslSigAlg, t.SigAlg}, {sslKeyAlg, t.KeyAlg}} {
		if v.text != "" {
			b = appendTLV(b, v.typ, clip(v.text))
		}
	}
	binary.BigEndian.PutUint16(b[start-2:], uint16(len(b)-start))
	return b
}

func clip(s string) string { return s[:min(len(s), maxTLSText)] }

var versionNames = map[uint16]string{
	tls.VersionTLS10: "TLSv1", tls.VersionTLS11: "TLSv1.1",
	tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3",
}

// VersionName is the name that OpenSSL has for a version of TLS.
func VersionName(version uint16) string { return versionNames[version] }

// cipherNames holds OpenSSL's names where they are not the registered ones.
var cipherNames = map[uint16]string{
	tls.TLS_RSA_WITH_RC4_128_SHA:                      "RC4-SHA",
	tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA:                 "DES-CBC3-SHA",
	tls.TLS_RSA_WITH_AES_128_CBC_SHA:                  "AES128-SHA",
	tls.TLS_RSA_WITH_AES_256_CBC_SHA:                  "AES256-SHA",
	tls.TLS_RSA_WITH_AES_128_CBC_SHA256:               "AES128-SHA256",
	tls.TLS_RSA_WITH_AES_128_GCM_SHA256:               "AES128-GCM-SHA256",
	tls.TLS_RSA_WITH_AES_256_GCM_SHA384:               "AES256-GCM-SHA384",
	tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA:              "ECDHE-ECDSA-RC4-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA:          "ECDHE-ECDSA-AES128-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA:          "ECDHE-ECDSA-AES256-SHA",
	tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA:                "ECDHE-RSA-RC4-SHA",
	tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA:           "ECDHE-RSA-DES-CBC3-SHA",
	tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:            "ECDHE-RSA-AES128-SHA",
	tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA:            "ECDHE-RSA-AES256-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256:       "ECDHE-ECDSA-AES128-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256:         "ECDHE-RSA-AES128-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:         "ECDHE-RSA-AES128-GCM-SHA256",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256:       "ECDHE-ECDSA-AES128-GCM-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384:         "ECDHE-RSA-AES256-GCM-SHA384",
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:       "ECDHE-ECDSA-AES256-GCM-SHA384",
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:   "ECDHE-RSA-CHACHA20-POLY1305",
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-ECDSA-CHACHA20-POLY1305",
}

// CipherName is the name that OpenSSL has for a cipher suite.
func CipherName(id uint16) string {
	if n, ok := cipherNames[id]; ok {
		return n
	}
	return tls.CipherSuiteName(id)
}

// signatureNames holds OpenSSL's short names.
var signatureNames = map[x509.SignatureAlgorithm]string{
	x509.MD5WithRSA: "RSA-MD5", x509.SHA1WithRSA: "RSA-SHA1", x509.SHA256WithRSA: "RSA-SHA256",
	x509.SHA384WithRSA: "RSA-SHA384", x509.SHA512WithRSA: "RSA-SHA512",
	x509.SHA256WithRSAPSS: "RSASSA-PSS", x509.SHA384WithRSAPSS: "RSASSA-PSS", x509.SHA512WithRSAPSS: "RSASSA-PSS",
	x509.DSAWithSHA1: "DSA-SHA1", x509.DSAWithSHA256: "dsa_with_SHA256",
	x509.ECDSAWithSHA1: "ecdsa-with-SHA1", x509.ECDSAWithSHA256: "ecdsa-with-SHA256",
	x509.ECDSAWithSHA384: "ecdsa-with-SHA384", x509.ECDSAWithSHA512: "ecdsa-with-SHA512",
	x509.PureEd25519: "ED25519",
}

func keyAlgorithm(c *x509.Certificate) string {
	switch k := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return "RSA" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return "EC" + strconv.Itoa(k.Curve.Params().BitSize)
	}
	return ""
}
