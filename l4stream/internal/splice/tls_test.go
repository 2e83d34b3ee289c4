// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"testing"
	"time"
)

// tlsConfigs makes the configuration of a server with a certificate of its own,
// and of a client that asks for nothing.
func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{InsecureSkipVerify: true}
}

// TestTLSIsTerminatedWithHalfClose: a request of some records, the client's end,
// then the answer, between TLS and a plain server.
func TestTLSIsTerminatedWithHalfClose(t *testing.T) {
	serverConfig, clientConfig := tlsConfigs(t)
	for _, timeout := range []time.Duration{0, patience} {
		peer, c := pair(t, "tcp")
		server, u := pair(t, "tcp")
		client := tls.Client(peer, clientConfig)
		_ = peer.SetDeadline(time.Now().Add(patience))
		_ = server.SetDeadline(time.Now().Add(patience))
		s := New(tls.Server(c, serverConfig), u, Config{HalfClose: true, Timeout: timeout})
		ended := make(chan Reason, 1)
		go func() { ended <- s.Run() }()

		request := bytes.Repeat([]byte("0123456789abcdef"), 10000)
		request = append(request, "end"...) // a last record that is small
		go func() {
			_, _ = client.Write(request)
			_ = client.CloseWrite()
		}()
		got, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(got, request) {
			t.Fatalf("server received %d bytes, %v, want %d", len(got), err, len(request))
		}
		answer := bytes.Repeat([]byte("answer"), 50000)
		go func() {
			_, _ = server.Write(answer)
			server.Close()
		}()
		// Both ends are through: the session closes, which ends the stream.
		got, err = io.ReadAll(client)
		if err != nil || !bytes.Equal(got, answer) {
			t.Fatalf("client received %d bytes, %v, want %d", len(got), err, len(answer))
		}
		if r := <-ended; r != Ended {
			t.Errorf("Run() = %v, want %v", r, Ended)
		}
		want := Counts{FromClient: int64(len(request)), ToUpstream: int64(len(request)), FromUpstream: int64(len(answer)), ToClient: int64(len(answer))}
		if c := s.Counts(); c != want {
			t.Errorf("Counts() = %+v, want %+v", c, want)
		}
	}
}
