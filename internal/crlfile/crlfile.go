// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package crlfile reads certificate revocation lists and checks chains against
// them, by OpenSSL's rules for X509_V_FLAG_CRL_CHECK_ALL (RFC 5280, section 5):
// every certificate of a chain, that of the authority at its end included, must
// have a list of its issuer which is in force, and must not be in it. Only what
// the files hold counts: nothing is fetched.
//
// A list that speaks of a part of its issuer's certificates only, or of changes
// to another list, is refused when it is read.
package crlfile

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// Lists are revocation lists. They are not changed once read.
type Lists struct {
	byIssuer map[string][]*list // by the issuer's name in DER
	digest   [sha256.Size]byte
}

// list is one revocation list.
type list struct {
	content *pkix.CertificateList
	revoked map[string]time.Time   // when, by serial number
	signer  atomic.Pointer[[]byte] // the certificate that its signature fits
}

// blockType is that of the PEM blocks with lists.
const blockType = "X509 CRL"

// Load reads PEM files with one list or several each.
func Load(files ...string) (*Lists, error) {
	ls := &Lists{byIssuer: map[string][]*list{}}
	digest := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found := 0
		for {
			var block *pem.Block
			if block, text = pem.Decode(text); block == nil {
				break
			}
			if block.Type != blockType {
				return nil, fmt.Errorf("%s: unexpected %q: expected PEM blocks of the type %q only", file, block.Type, blockType)
			}
			found++
			if err := ls.add(block.Bytes); err != nil {
				return nil, fmt.Errorf("%s: list %d: %w", file, found, err)
			}
			digest.Write(block.Bytes)
		}
		if found == 0 {
			return nil, fmt.Errorf("%s: no revocation list in it: expected PEM blocks of the type %q", file, blockType)
		}
	}
	digest.Sum(ls.digest[:0])
	return ls, nil
}

// head is the beginning of a list, up to the name of the issuer as it is
// written.
type head struct {
	Version   int `asn1:"optional,default:0"`
	Signature asn1.RawValue
	Issuer    asn1.RawValue
}

func (ls *Lists) add(der []byte) error {
	// those that replace it refuse version 1, in which openssl ca writes lists
	//lint:ignore SA1019 see above
	content, err := x509.ParseDERCRL(der)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	var h head
	if _, err := asn1.Unmarshal(content.TBSCertList.Raw, &h); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	if err := understood(content.TBSCertList.Extensions, listExtensions); err != nil {
		return err
	}
	l := &list{content: content, revoked: make(map[string]time.Time, len(content.TBSCertList.RevokedCertificates))}
	for _, c := range content.TBSCertList.RevokedCertificates {
		if err := understood(c.Extensions, entryExtensions); err != nil {
			return fmt.Errorf("the entry with the serial number %s: %w", serial(c.SerialNumber), err)
		}
		if !taken(c.Extensions) {
			l.revoked[string(c.SerialNumber.Bytes())] = c.RevocationTime
		}
	}
	issuer := string(h.Issuer.FullBytes)
	ls.byIssuer[issuer] = append(ls.byIssuer[issuer], l)
	return nil
}

// The extensions of lists and their entries that are known, and those that
// change what a list says (RFC 5280, sections 5.2 and 5.3).
var (
	listExtensions  = []string{"2.5.29.35", "2.5.29.20", "2.5.29.18", "2.5.29.46"} // key, number, other names, deltas elsewhere
	entryExtensions = []string{"2.5.29.21", "2.5.29.24"}                           // reason, date
	partial         = map[string]string{
		"2.5.29.27": "it says only what has changed since another list (delta)",
		"2.5.29.28": "it is for a part of the certificates of its issuer only (issuing distribution point)",
		"2.5.29.29": "it is for certificates of other issuers, too (indirect)",
	}
	reasonCode = asn1.ObjectIdentifier{2, 5, 29, 21}
)

func understood(extensions []pkix.Extension, known []string) error {
	for _, e := range extensions {
		id := e.Id.String()
		if what := partial[id]; what != "" {
			return fmt.Errorf("%s: expected a whole list", what)
		}
		if e.Critical && !slices.Contains(known, id) {
			return fmt.Errorf("it has the critical extension %s, which is not known", id)
		}
	}
	return nil
}

// taken reports whether an entry takes a certificate out of a list.
func taken(extensions []pkix.Extension) bool {
	for _, e := range extensions {
		var reason asn1.Enumerated
		if e.Id.Equal(reasonCode) {
			_, err := asn1.Unmarshal(e.Value, &reason)
			return err == nil && reason == 8
		}
	}
	return false
}

func serial(n *big.Int) string { return fmt.Sprintf("%x", n) }

// Equal reports whether the files of both held the same.
func (ls *Lists) Equal(o *Lists) bool {
	if ls == nil || o == nil {
		return ls == o
	}
	return ls.digest == o.digest
}

// Digest is that of what the files held; it is zero for nil.
func (ls *Lists) Digest() (d [sha256.Size]byte) {
	if ls != nil {
		d = ls.digest
	}
	return d
}

// Check returns nil if one of the chains, each from a certificate to an
// authority, passes, and what is wrong with the first of them otherwise.
func (ls *Lists) Check(chains [][]*x509.Certificate, now time.Time) error {
	first := errors.New("there is no chain of verified certificates")
	for i, chain := range chains {
		err := ls.checkChain(chain, now)
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return fmt.Errorf("revocation: %w", first)
}

func (ls *Lists) checkChain(chain []*x509.Certificate, now time.Time) error {
	for i, cert := range chain {
		issuer := cert // an authority that signed itself
		if i+1 < len(chain) {
			issuer = chain[i+1]
		} else if !bytes.Equal(cert.RawIssuer, cert.RawSubject) {
			return fmt.Errorf("the certificate of the issuer of %q is not known, whose list is needed", cert.Subject)
		}
		l, err := ls.inForce(cert, issuer, now)
		if err != nil {
			return err
		}
		if when, revoked := l.revoked[string(cert.SerialNumber.Bytes())]; revoked {
			return fmt.Errorf("the certificate %q with the serial number %s was revoked by %q at %s",
				cert.Subject, serial(cert.SerialNumber), issuer.Subject, when.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// inForce finds the newest list for a certificate.
func (ls *Lists) inForce(cert, issuer *x509.Certificate, now time.Time) (found *list, err error) {
	err = fmt.Errorf("no list of %q, which issued the certificate %q", issuer.Subject, cert.Subject)
	for _, l := range ls.byIssuer[string(cert.RawIssuer)] {
		switch wrong := l.check(issuer, now); {
		case wrong != nil:
			err = fmt.Errorf("the list of %q: %w", issuer.Subject, wrong)
		case found == nil || l.content.TBSCertList.ThisUpdate.After(found.content.TBSCertList.ThisUpdate):
			found = l
		}
	}
	if found != nil {
		err = nil
	}
	return found, err
}

// check reports whether the list is its issuer's and in force.
func (l *list) check(issuer *x509.Certificate, now time.Time) error {
	if err := l.signedBy(issuer); err != nil {
		return err
	}
	switch from, to := l.content.TBSCertList.ThisUpdate, l.content.TBSCertList.NextUpdate; {
	case now.Before(from):
		return fmt.Errorf("it is not in force before %s", from.UTC().Format(time.RFC3339))
	case !to.IsZero() && now.After(to):
		return fmt.Errorf("it expired at %s", to.UTC().Format(time.RFC3339))
	}
	return nil
}

// signedBy checks the signature, once for each issuer in a row.
func (l *list) signedBy(issuer *x509.Certificate) error {
	if known := l.signer.Load(); known != nil && bytes.Equal(*known, issuer.Raw) {
		return nil
	}
	if issuer.KeyUsage != 0 && issuer.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return errors.New("the certificate of its issuer is not for signing lists (key usage)")
	}
	//lint:ignore SA1019 lists of version 1 are there
	if err := issuer.CheckCRLSignature(l.content); err != nil {
		return fmt.Errorf("it is not signed by that issuer: %w", err)
	}
	l.signer.Store(&issuer.Raw)
	return nil
}
