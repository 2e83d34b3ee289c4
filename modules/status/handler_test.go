// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"io/fs"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func TestTheDirectiveIsReadStrictly(t *testing.T) {
	for _, c := range []struct {
		text, says string
		write      bool
	}{
		{"upstream_status", "", false},
		{"upstream_status {\n}", "", false},
		{"upstream_status {\n write\n}", "", true},
		{"upstream_status {\n write\n write\n}", "write given twice", false},
		{"upstream_status {\n write yes\n}", "argument", false},
		{"upstream_status {\n read\n}", `unknown option "read" of upstream_status: expected write`, false},
		{"upstream_status page", `no argument but a matcher, got "page"`, false},
	} {
		h := new(Handler)
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(c.text))
		switch {
		case c.says == "" && (err != nil || h.Write != c.write):
			t.Errorf("%q: %v, write %v", c.text, err, h.Write)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
	}
}

// TestThePageIsSafeUnderItsPolicy looks for what its policy forbids, and for other
// hosts.
func TestThePageIsSafeUnderItsPolicy(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)\sstyle=|\son[a-z]+=|<script>|javascript:|innerHTML|\beval\(|https?://[^w]`)
	served := map[string]bool{}
	for _, a := range assets {
		served[a.file] = true
	}
	err := fs.WalkDir(page, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !served[path] {
			t.Errorf("%s is not served", path)
		}
		text, err := page.ReadFile(path)
		if found := forbidden.Find(text); found != nil {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := new(Handler).ServeHTTP(w, httptest.NewRequest("GET", "/", nil), nil); err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Content-Security-Policy"); got != policy || strings.Contains(got, "unsafe") {
		t.Errorf("policy %q", got)
	}
}
