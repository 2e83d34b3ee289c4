// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package keyfile reads certificates whose private keys need a password.
package keyfile

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"os"

	"go.step.sm/crypto/pemutil"
)

// Load reads the PEM files of a certificate and of its key. An encrypted key is
// opened with the first password that fits of those in a file, one a line, as
// nginx does; without such a file the key must not be encrypted.
func Load(cert, key, passwords string) (tls.Certificate, error) {
	if passwords == "" {
		return tls.LoadX509KeyPair(cert, key)
	}
	certPEM, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := os.ReadFile(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	lines, err := os.ReadFile(passwords)
	if err != nil {
		return tls.Certificate{}, err
	}
	block := encrypted(keyPEM)
	if block == nil {
		return tls.X509KeyPair(certPEM, keyPEM)
	}
	for password := range bytes.Lines(lines) {
		der, err := pemutil.DecryptPEMBlock(block, bytes.TrimRight(password, "\r\n"))
		if err != nil {
			continue
		}
		// a wrong password may go unnoticed until here
		plain := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if pair, err := tls.X509KeyPair(certPEM, plain); err == nil {
			return pair, nil
		}
	}
	return tls.Certificate{}, fmt.Errorf("key %s: no password in %s opens it for the certificate %s", key, passwords, cert)
}

// encrypted finds the encrypted key in a PEM file, nil if there is none.
func encrypted(text []byte) *pem.Block {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["Proc-Type"] == "4,ENCRYPTED" {
			return block
		}
	}
}
