// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package crlfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// now is when the tests look.
var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// holder has a certificate and may sign others and lists.
type holder struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate that by signs, or that signs itself.
func issue(t testing.TB, by *holder, name string, serial int64, change ...func(*x509.Certificate)) *holder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	for _, c := range change {
		c(template)
	}
	h := &holder{t: t, key: key}
	if by == nil {
		by = &holder{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err == nil {
		h.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// list makes a list in which the serial numbers are revoked.
func (h *holder) list(change func(*x509.RevocationList), revoked ...int64) string {
	h.t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-time.Minute), NextUpdate: now.Add(time.Minute)}
	for _, n := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: now.Add(-time.Minute)})
	}
	if change != nil {
		change(template)
	}
	signer := *h.cert
	signer.KeyUsage |= x509.KeyUsageCRLSign // else it is not made
	der, err := x509.CreateRevocationList(rand.Reader, template, &signer, h.key)
	if err != nil {
		h.t.Fatal(err)
	}
	return block(der)
}

// version1 makes a list as `openssl ca -gencrl` does by default.
func (h *holder) version1(revoked ...int64) string {
	h.t.Helper()
	var entries []pkix.RevokedCertificate
	for _, n := range revoked {
		entries = append(entries, pkix.RevokedCertificate{SerialNumber: big.NewInt(n), RevocationTime: now})
	}
	//lint:ignore SA1019 nothing else makes them
	der, err := h.cert.CreateCRL(rand.Reader, h.key, entries, now.Add(-time.Minute), now.Add(time.Minute))
	if err != nil {
		h.t.Fatal(err)
	}
	var all struct {
		//lint:ignore SA1019 version 1 has no other
		TBS       pkix.TBSCertificateList
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &all); err != nil {
		h.t.Fatal(err)
	}
	all.TBS.Raw, all.TBS.Version, all.TBS.Extensions = nil, 0, nil
	tbs, err := asn1.Marshal(all.TBS)
	if err != nil {
		h.t.Fatal(err)
	}
	digest := sha256.Sum256(tbs)
	signature, err := ecdsa.SignASN1(rand.Reader, h.key, digest[:])
	if err != nil {
		h.t.Fatal(err)
	}
	all.TBS.Raw = tbs
	all.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}
	if der, err = asn1.Marshal(all); err != nil {
		h.t.Fatal(err)
	}
	return block(der)
}

func block(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "crl.pem")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func expired(l *x509.RevocationList) {
	l.ThisUpdate, l.NextUpdate = now.Add(-2*time.Minute), now.Add(-time.Minute)
}

func TestEveryCertificateOfAChainNeedsAListInForceThatDoesNotNameIt(t *testing.T) {
	root := issue(t, nil, "root", 1)
	middle := issue(t, root, "middle", 2)
	leaf := issue(t, middle, "leaf", 3)
	stranger := issue(t, nil, "middle", 9) // of the same name
	unfit := issue(t, nil, "unfit", 1, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign })
	whole := []*holder{leaf, middle, root}
	newer := func(l *x509.RevocationList) { l.ThisUpdate = now.Add(-time.Second) }
	removed := func(l *x509.RevocationList) { l.RevokedCertificateEntries[0].ReasonCode = 8 }
	for _, tt := range []struct {
		name  string
		chain []*holder
		lists string
		want  string // empty: it passes
	}{
		{"nothing is revoked", whole, root.list(nil) + middle.list(nil), ""},
		{"others are revoked", whole, root.list(nil, 3, 7) + middle.list(nil, 2, 1), ""},
		{"the certificate is revoked", whole, root.list(nil) + middle.list(nil, 7, 3), `"CN=leaf" with the serial number 3 was revoked by "CN=middle" at 2026-03-04T05:05:07Z`},
		{"its issuer is revoked", whole, root.list(nil, 2) + middle.list(nil), `"CN=middle" with the serial number 2 was revoked by "CN=root"`},
		{"the authority has revoked itself", whole, root.list(nil, 1) + middle.list(nil), `"CN=root" with the serial number 1 was revoked`},
		{"the issuer has no list", whole, root.list(nil), `no list of "CN=middle", which issued the certificate "CN=leaf"`},
		{"the authority has no list", whole, middle.list(nil), `no list of "CN=root", which issued the certificate "CN=middle"`},
		{"the list has expired", whole, root.list(nil) + middle.list(expired), `the list of "CN=middle": it expired at 2026-03-04T05:05:07Z`},
		{"the list is of the future", whole, root.list(nil) + middle.list(func(l *x509.RevocationList) { l.ThisUpdate = now.Add(time.Second) }), "it is not in force before 2026-03-04T05:06:08Z"},
		{"the list is signed by another of the same name", whole, root.list(nil) + stranger.list(nil), `the list of "CN=middle": it is not signed by that issuer`},
		{"that of the same name is passed over", whole, root.list(nil) + stranger.list(nil, 3) + middle.list(nil), ""},
		{"an expired list is passed over", whole, root.list(nil) + middle.list(nil) + middle.list(expired, 3), ""},
		{"the newest counts: revoked", whole, root.list(nil) + middle.list(newer, 3) + middle.list(nil), "was revoked"},
		{"the newest counts: not revoked", whole, root.list(nil) + middle.list(nil, 3) + middle.list(newer), ""},
		{"a list that takes it out again", whole, root.list(nil) + middle.list(removed, 3), ""},
		{"lists of version 1", whole, root.version1(1000) + middle.version1(7), ""},
		{"revoked in a list of version 1", whole, root.version1() + middle.version1(3), `"CN=leaf" with the serial number 3 was revoked`},
		{"an authority alone", []*holder{root}, root.list(nil), ""},
		{"the end of the chain is not known", []*holder{leaf, middle}, root.list(nil) + middle.list(nil), `the certificate of the issuer of "CN=middle" is not known`},
		{"an authority that may not sign lists", []*holder{unfit}, unfit.list(nil), "not for signing lists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lists, err := Load(file(t, tt.lists))
			if err != nil {
				t.Fatal(err)
			}
			var chain []*x509.Certificate
			for _, h := range tt.chain {
				chain = append(chain, h.cert)
			}
			for range 2 { // what is remembered of signatures changes nothing
				switch err := lists.Check([][]*x509.Certificate{chain}, now); {
				case tt.want == "" && err != nil:
					t.Errorf("Check() = %v, want nil", err)
				case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("Check() = %v, want %q", err, tt.want)
				}
			}
		})
	}
}

func TestOneChainThatPassesIsEnoughAndNoChainIsNot(t *testing.T) {
	root, other := issue(t, nil, "root", 1), issue(t, nil, "other", 1)
	lists, err := Load(file(t, root.list(nil)))
	if err != nil {
		t.Fatal(err)
	}
	bad, good := []*x509.Certificate{other.cert}, []*x509.Certificate{root.cert}
	if err := lists.Check([][]*x509.Certificate{bad, good}, now); err != nil {
		t.Errorf("Check() = %v with one chain that passes", err)
	}
	if lists.Check([][]*x509.Certificate{bad}, now) == nil || lists.Check(nil, now) == nil {
		t.Error("Check() = nil without a chain that passes")
	}
}

func TestFilesThatAreNoListsAreRefusedWithTheReason(t *testing.T) {
	root := issue(t, nil, "root", 1)
	with := func(id asn1.ObjectIdentifier, critical bool) string {
		return root.list(func(l *x509.RevocationList) {
			l.ExtraExtensions = []pkix.Extension{{Id: id, Critical: critical, Value: []byte{5, 0}}}
		})
	}
	entry := root.list(func(l *x509.RevocationList) {
		l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 29}, Critical: true, Value: []byte{5, 0}}}
	}, 10)
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.cert.Raw}))
	for name, tt := range map[string]struct{ text, want string }{
		"empty":         {"", "no revocation list in it"},
		"DER":           {"\x30\x00", "no revocation list in it"},
		"a certificate": {root.list(nil) + certificate, `unexpected "CERTIFICATE"`},
		"damaged":       {root.list(nil) + block([]byte("\x30\x03abc")), "list 2: it cannot be read"},
		"a delta":       {with(asn1.ObjectIdentifier{2, 5, 29, 27}, true), "since another list (delta)"},
		"partial":       {with(asn1.ObjectIdentifier{2, 5, 29, 28}, true), "a part of the certificates"},
		"indirect":      {entry, "the serial number a: it is for certificates of other issuers"},
		"unknown":       {with(asn1.ObjectIdentifier{1, 2, 3}, true), "the critical extension 1.2.3"},
	} {
		if _, err := Load(file(t, tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "crl.pem") {
			t.Errorf("%s: Load() = %v, want the file and %q", name, err, tt.want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is no error")
	}
	if _, err := Load(file(t, with(asn1.ObjectIdentifier{1, 2, 3}, false))); err != nil {
		t.Errorf("an extension that is not critical: %v", err)
	}
}

func TestListsAreEqualIfTheirFilesHoldTheSame(t *testing.T) {
	root := issue(t, nil, "root", 1)
	one, two := root.list(nil), root.list(nil, 3)
	load := func(texts ...string) *Lists {
		var files []string
		for _, text := range texts {
			files = append(files, file(t, text))
		}
		lists, err := Load(files...)
		if err != nil {
			t.Fatal(err)
		}
		return lists
	}
	var none *Lists
	if !load(one, two).Equal(load(one+"\n"+two)) || !none.Equal(nil) {
		t.Error("equal lists differ")
	}
	if load(one).Equal(load(two)) || load(one).Equal(nil) || none.Equal(load(one)) || none.Digest() == load(one).Digest() {
		t.Error("different lists are equal")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x30\x03\x02\x01\x01"))
	root := issue(f, nil, "root", 1)
	der, _ := pem.Decode([]byte(root.list(nil, 1, 2)))
	f.Add(der.Bytes)
	f.Fuzz(func(t *testing.T, der []byte) {
		ls := &Lists{byIssuer: map[string][]*list{}}
		if ls.add(der) == nil {
			_ = ls.Check([][]*x509.Certificate{{root.cert}}, now)
		}
	})
}
