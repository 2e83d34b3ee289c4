// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// filesIn are the files below dir, with what they hold.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestABodyWithANamedFileIsWholeInItAndSentAgainFromIt(t *testing.T) {
	large := strings.Repeat("0123456789", memoryLimit)
	for _, tt := range []struct {
		options, body string
		during, after bool // there is a file
	}{
		{"", "small", false, false},
		{"", large, true, false},
		{`, "keep": true`, "small", false, false},
		{`, "keep": true`, large, true, true},
		{`, "always": true`, "small", true, false},
		{`, "always": true, "keep": true`, "small", true, true},
		{`, "always": true, "keep": true`, large, true, true},
		{`, "always": true, "keep": true`, "", true, true},
	} {
		t.Run(fmt.Sprintf("%d bytes%s", len(tt.body), tt.options), func(t *testing.T) {
			dir := t.TempDir()
			options := fmt.Sprintf(`, "request_body_files": {"dir": %q%s}`, dir+"/bodies", tt.options)
			if !strings.Contains(options, "always") {
				options += small
			}
			p := newProxy(t, options, func(try int, r *http.Request) (*http.Response, error) {
				got, err := io.ReadAll(r.Body)
				if string(got) != tt.body || err != nil {
					t.Errorf("try %d got %d bytes (%v), want %d", try, len(got), err, len(tt.body))
				}
				name, _ := caddyhttp.GetVar(r.Context(), BodyFileVar).(string)
				if files := filesIn(t, dir); (name != "") != tt.during || len(files) > 1 || tt.during && files[strings.TrimPrefix(name, dir)] != tt.body {
					t.Errorf("try %d: %d files, the request's is %q", try, len(files), name)
				}
				if try == 1 {
					return nil, syscall.ECONNRESET
				}
				return ok(r, "fine"), nil
			})
			r := httptest.NewRequest("PUT", "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Length", fmt.Sprint(len(tt.body)))
			if status, _, err := p.serve(r); status != 200 {
				t.Errorf("status %d (%v), want 200", status, err)
			}
			files := filesIn(t, dir)
			if (len(files) == 1) != tt.after {
				t.Errorf("%d files are left", len(files))
			}
			for name := range files {
				if info, err := os.Stat(dir + name); err != nil || info.Mode() != 0o600 {
					t.Errorf("%v %v, want a file for its owner only", info.Mode(), err)
				}
			}
		})
	}
}

func TestAFileOfABodyThatBreaksOffOrIsTooLargeIsNotKept(t *testing.T) {
	dir := t.TempDir()
	options := fmt.Sprintf(`, "request_body_files": {"dir": %q, "keep": true}`, dir) + small
	p := newProxy(t, options, func(_ int, r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return ok(r, "fine"), nil
	})
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", memoryLimit+1)), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
	for name, body := range map[string]io.Reader{"broken": broken, "too large": strings.NewReader(strings.Repeat("x", fileLimit+1))} {
		r := httptest.NewRequest("PUT", "/", body)
		r.ContentLength = -1
		_, _, _ = p.serve(r)
		if files := filesIn(t, dir); len(files) != 0 {
			t.Errorf("%s: %d files are left", name, len(files))
		}
	}
}

func TestFilesOfBodiesAreNamedByNumbersInLevels(t *testing.T) {
	dir := t.TempDir()
	deep := &BodyFiles{Dir: dir, Levels: []int{1, 2, 3}}
	for range 2 {
		next := lastFile.Load()
		f, err := deep.create()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		lastFile.Store(next) // so that the name is taken the second time
	}
	files := filesIn(t, dir)
	shape := regexp.MustCompile(`^/(\d)/(\d\d)/(\d{3})/\d+$`)
	for name := range files {
		m := shape.FindStringSubmatch(name)
		if m == nil || !strings.HasSuffix(name, m[3]+m[2]+m[1]) {
			t.Errorf("a file is %s", name)
		}
	}
	if len(files) != 2 {
		t.Errorf("%d files, want 2", len(files))
	}
}

func TestSettingsOfFilesOfBodiesThatCannotBeAreErrors(t *testing.T) {
	for want, b := range map[string]*BodyFiles{
		"no directory": {}, "4 levels": {Dir: "x", Levels: []int{1, 1, 1, 1}}, "a level of 0 digits": {Dir: "x", Levels: []int{0}}, "a level of 4 digits": {Dir: "x", Levels: []int{1, 4}},
	} {
		if err := (&Transport{RequestBodyFiles: b}).settle(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("settle() = %v, want %q", err, want)
		}
	}
	if err := (&Transport{RequestBodyFiles: &BodyFiles{Dir: "x", Levels: []int{3, 3, 3}}}).settle(); err != nil {
		t.Errorf("settle() = %v", err)
	}
}
