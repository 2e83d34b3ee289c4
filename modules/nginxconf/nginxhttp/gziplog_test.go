// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// opened is an open log, with what its file holds, decompressed.
func opened(t *testing.T, l *GzipLog) (w io.WriteCloser, text func() string) {
	t.Helper()
	l.Filename = filepath.Join(t.TempDir(), "log.gz")
	if err := l.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	w, err := l.OpenWriter()
	if err != nil {
		t.Fatal(err)
	}
	return w, func() string {
		t.Helper()
		raw, err := os.ReadFile(l.Filename)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			return ""
		}
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func write(t *testing.T, w io.Writer, line string) {
	t.Helper()
	if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("Write() = %d, %v", n, err)
	}
}

func TestLinesAreCompressedWhenThereAreEnoughAndAtTheEnd(t *testing.T) {
	w, text := opened(t, &GzipLog{Buffer: 8})
	for _, step := range []struct{ line, want string }{
		{"one\n", ""}, {"two\n", "one\ntwo\n"}, {"three\n", "one\ntwo\n"}, {"four\n", "one\ntwo\nthree\n"}, {"far too long\n", "one\ntwo\nthree\nfour\nfar too long\n"},
		{"end\n", "one\ntwo\nthree\nfour\nfar too long\n"},
	} {
		write(t, w, step.line)
		if got := text(); got != step.want {
			t.Errorf("after %q the file has %q, want %q", step.line, got, step.want)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if got := text(); got != "one\ntwo\nthree\nfour\nfar too long\nend\n" {
		t.Errorf("in the end the file has %q", got)
	}
	if _, err := w.Write([]byte("more\n")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write() of a closed log = %v", err)
	}
}

func TestWhatIsCollectedIsWrittenWhenTheConfigurationEnds(t *testing.T) {
	mine, other := &GzipLog{}, &GzipLog{}
	w, text := opened(t, mine)
	defer w.Close()
	v, rest := opened(t, other)
	defer v.Close()
	write(t, w, "one\n")
	write(t, v, "two\n")
	if err := mine.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if got := text(); got != "one\n" || rest() != "" {
		t.Errorf("the file has %q, the other %q, want the first only", got, rest())
	}
	writeGzipLogs("")
	write(t, w, "more\n") // of a request that is still there
	if got := rest(); got != "two\n" {
		t.Errorf("at exit the other file has %q", got)
	}
}

func TestALineWaitsNoLongerThanFlushSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, text := opened(t, &GzipLog{Flush: caddy.Duration(time.Second)})
		for i, line := range []string{"one\n", "two\n"} {
			write(t, w, line)
			time.Sleep(time.Second - 1)
			synctest.Wait()
			if got := text(); len(got) != i*4 {
				t.Errorf("before the second is over the file has %q", got)
			}
			time.Sleep(1 * time.Nanosecond)
			synctest.Wait()
			if got := text(); len(got) != i*4+4 {
				t.Errorf("after the second the file has %q", got)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSettingsOfACompressedLogThatCannotBeAreErrors(t *testing.T) {
	for _, l := range []*GzipLog{{}, {Filename: "x", Level: 10}, {Filename: "x", Buffer: -1}, {Filename: "x", Flush: -1}} {
		if err := l.Provision(caddy.Context{}); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if _, err := (&GzipLog{Filename: filepath.Join(t.TempDir(), "no", "such")}).OpenWriter(); err == nil {
		t.Error("a file that cannot be made is no error")
	}
}

func TestModulesForCaddyfilesReadTheirOptions(t *testing.T) {
	for _, tt := range []struct {
		mod  caddyfile.Unmarshaler
		text string
		want string // JSON, or a part of the error
	}{
		{new(GzipLog), "nginx_gzip /l.gz", `{"filename":"/l.gz"}`},
		{new(GzipLog), "nginx_gzip /l.gz {\nlevel 9\nbuffer 1KiB\nflush 2s\n}", `{"filename":"/l.gz","level":9,"buffer":1024,"flush":2000000000}`},
		{new(GzipLog), "nginx_gzip", "expected a file"},
		{new(GzipLog), "nginx_gzip a b", "expected a file"},
		{new(GzipLog), "nginx_gzip a {\nlevels 1\n}", `unknown option "levels"`},
		{new(Encoder), "nginx", `{}`},
		{new(Encoder), "nginx `$uri \"x\"` {\nescape json\n}", `{"log_format":"$uri \"x\"","escape":"json"}`},
		{new(Encoder), "nginx a b", `unexpected "b"`},
		{new(Encoder), "nginx a {\nescape html\n}", `unexpected "html"`},
		{new(Revocation), "nginx_crl a.pem b.pem", `{"files":["a.pem","b.pem"]}`},
		{new(Revocation), "nginx_crl", "expected one or more files"},
		{new(Revocation), "nginx_crl a {\nb\n}", "unexpected block"},
	} {
		err := tt.mod.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tt.text))
		got, _ := json.Marshal(tt.mod)
		if err != nil {
			got = []byte(err.Error())
		}
		if err == nil && string(got) != tt.want || err != nil && !strings.Contains(string(got), tt.want) {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}
