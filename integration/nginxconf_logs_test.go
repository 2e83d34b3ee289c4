// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

func TestCompressedLogsAreCompleteWhenCaddyHasExited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	front, other := testnet.Reserve(t).Addr(), testnet.Reserve(t).Addr()
	c := startAdapted(t, fmt.Sprintf(`http { log_format test '$request_uri $status'; access_log %[1]s/http.gz test gzip buffer=1m;
	server { listen %[2]s; return 204; } }
stream { log_format test '$protocol $status'; access_log %[1]s/stream.gz test gzip=9 buffer=1m flush=1h;
	server { listen %[3]s; return x; } }
`, dir, front, other), dir)
	for i := range 3 {
		testnet.Get(t, fmt.Sprintf("http://%s/%d", front, i))
		conn, err := testnet.Dial(other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn.Conn); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	for _, name := range []string{"http.gz", "stream.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != 0 {
			t.Errorf("%s: %v, want an empty file", name, err)
		}
	}
	c.StopGracefully(time.Minute)
	for name, want := range map[string]string{"http.gz": "/0 204\n/1 204\n/2 204\n", "stream.gz": "TCP 200\nTCP 200\nTCP 200\n"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, err := io.ReadAll(z); string(text) != want || err != nil {
			t.Errorf("%s has %q, %v, want %q", name, text, err, want)
		}
		f.Close()
	}
}
