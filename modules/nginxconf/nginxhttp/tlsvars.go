// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/proxyproto"
)

// tlsVariables are those of the client's TLS connection, empty without one.
var tlsVariables = map[string]func(*tls.ConnectionState) string{
	"ssl_protocol":      func(c *tls.ConnectionState) string { return proxyproto.VersionName(c.Version) },
	"ssl_cipher":        func(c *tls.ConnectionState) string { return proxyproto.CipherName(c.CipherSuite) },
	"ssl_curve":         tlsCurve,
	"ssl_server_name":   func(c *tls.ConnectionState) string { return c.ServerName },
	"ssl_alpn_protocol": func(c *tls.ConnectionState) string { return c.NegotiatedProtocol },
	"ssl_session_reused": func(c *tls.ConnectionState) string {
		if c.DidResume {
			return "r"
		}
		return "."
	},

	"ssl_client_s_dn":        ofClient(func(c *x509.Certificate) string { return distinguished(c.RawSubject) }),
	"ssl_client_i_dn":        ofClient(func(c *x509.Certificate) string { return distinguished(c.RawIssuer) }),
	"ssl_client_serial":      ofClient(func(c *x509.Certificate) string { return strings.ToUpper(hexOfSerial(c)) }),
	"ssl_client_fingerprint": ofClient(func(c *x509.Certificate) string { sum := sha1.Sum(c.Raw); return hex.EncodeToString(sum[:]) }),
	"ssl_client_v_start":     ofClient(func(c *x509.Certificate) string { return c.NotBefore.UTC().Format(certTime) }),
	"ssl_client_v_end":       ofClient(func(c *x509.Certificate) string { return c.NotAfter.UTC().Format(certTime) }),
	"ssl_client_v_remain": ofClient(func(c *x509.Certificate) string {
		return strconv.Itoa(max(0, int(time.Until(c.NotAfter)/(24*time.Hour))))
	}),
	"ssl_client_raw_cert":     ofClient(func(c *x509.Certificate) string { return certText(c) + "\n" }),
	"ssl_client_cert":         ofClient(func(c *x509.Certificate) string { return strings.ReplaceAll(certText(c), "\n", "\n\t") }),
	"ssl_client_escaped_cert": ofClient(func(c *x509.Certificate) string { return escapeComponent(certText(c) + "\n") }),
}

// certTime is how OpenSSL prints the times of a certificate.
const certTime = "Jan _2 15:04:05 2006 GMT"

// ofClient makes a variable of the client's certificate.
func ofClient(f func(*x509.Certificate) string) func(*tls.ConnectionState) string {
	return func(c *tls.ConnectionState) string {
		if len(c.PeerCertificates) == 0 {
			return ""
		}
		return f(c.PeerCertificates[0])
	}
}

func withTLS(f func(*tls.ConnectionState) string) func(*state) string {
	return func(st *state) string {
		if st.r.TLS == nil {
			return ""
		}
		return f(st.r.TLS)
	}
}

// tlsCurve is the curve's name as OpenSSL has it.
func tlsCurve(c *tls.ConnectionState) string {
	switch c.CurveID {
	case 0:
		return ""
	case tls.CurveP256:
		return "prime256v1"
	case tls.CurveP384:
		return "secp384r1"
	case tls.CurveP521:
		return "secp521r1"
	}
	return c.CurveID.String()
}

// sslClientVerify is $ssl_client_verify.
func sslClientVerify(st *state) string {
	c := st.r.TLS
	switch {
	case c == nil:
		return ""
	case len(c.PeerCertificates) == 0:
		return "NONE"
	case len(c.VerifiedChains) > 0, verified(c.PeerCertificates, st.server.clientCAs):
		return "SUCCESS"
	}
	return "FAILED:unable to verify the first certificate"
}

func verified(chain []*x509.Certificate, roots *x509.CertPool) bool {
	if roots == nil {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// certPool reads files of authorities, nil if there are none.
func certPool(files []string) (*x509.CertPool, error) {
	if files == nil {
		return nil, nil
	}
	pool := x509.NewCertPool()
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in it", f)
		}
	}
	return pool, nil
}

func hexOfSerial(c *x509.Certificate) string {
	s := c.SerialNumber.Text(16)
	if len(s)%2 != 0 {
		s = "0" + s
	}
	return s
}

// certText is a certificate in PEM, without the last line's end.
func certText(c *x509.Certificate) string {
	return strings.TrimSuffix(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})), "\n")
}

// attributeNames are the short names of OpenSSL.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST",
	"2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.17": "postalCode",
	"2.5.4.42": "GN", "1.2.840.113549.1.9.1": "emailAddress", "0.9.2342.19200300.100.1.25": "DC",
	"0.9.2342.19200300.100.1.1": "UID",
}

// distinguished prints a name as RFC 2253 says, which is how nginx does.
func distinguished(raw []byte) string {
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(raw, &name); err != nil || len(rest) > 0 {
		return ""
	}
	var parts []string
	for _, set := range slices.Backward(name) {
		var values []string
		for _, v := range set {
			kind := attributeNames[v.Type.String()]
			if kind == "" {
				kind = v.Type.String()
			}
			values = append(values, kind+"="+escapeDN(fmt.Sprint(v.Value)))
		}
		parts = append(parts, strings.Join(values, "+"))
	}
	return strings.Join(parts, ",")
}

// escapeDN escapes a value of a name, bytes beyond ASCII too.
func escapeDN(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%02X`, c)
		case strings.IndexByte(`,+"\<>;`, c) >= 0, i == 0 && (c == '#' || c == ' '), i == len(s)-1 && c == ' ':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeComponent escapes all but what is unreserved in a URI.
func escapeComponent(s string) string {
	return escape(s, func(c byte) bool {
		return (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte("-._~", c) < 0
	})
}
