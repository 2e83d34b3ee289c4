// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"slices"
	"testing"
)

func TestAServerIsChosenByNameInNginxsOrder(t *testing.T) {
	b := &servers{}
	for _, names := range [][]string{
		nil, {"www.example.com", "EXACT.org"}, {"*.example.com"}, {"", ".example.org"}, {"www.example.*"}, {"mail.*"},
		{`~^mail\d+\.`}, {`~^mail.*$`}, {"*.b.example.com"},
	} {
		s := &Server{ServerName: names}
		if err := s.readNames(); err != nil {
			t.Fatal(err)
		}
		b.list = append(b.list, s)
	}
	for name, want := range map[string]int{
		"www.example.com": 1, "exact.org": 1, "x.example.com": 2, "x.b.example.com": 8, "b.example.com": 2,
		"example.org": 3, "y.example.org": 3, "www.example.net": 4, "www.example.org": 3, "mail.example.net": 5,
		"mail7.net": 6, "mailer.net": 7, "": 0, "other": 0, "example.com": 0, "mail.": 0 + 7,
	} {
		if got := b.byName(name); got != b.list[want] {
			t.Errorf("byName(%q) = the server of %v, want that of %v", name, got.ServerName, b.list[want].ServerName)
		}
	}
	for _, bad := range []string{".", "*", "*.", "a.*.com", "*.*", "a*", "~("} {
		if _, err := parseServerName(bad); err == nil {
			t.Errorf("parseServerName(%q) is accepted", bad)
		}
	}
}

func TestTheNameOfAServerIsTheFirstOfItsNames(t *testing.T) {
	for want, names := range map[string][]string{
		"app.example.com": {"App.Example.com", "b.example.com"}, "example.com": {".example.com"}, "*.example.com": {"*.example.com"},
		"www.*": {"www.*"}, `~^A\d+$`: {`~^A\d+$`}, "_": {"_"},
	} {
		testServerName(t, names, want)
	}
	testServerName(t, nil, "")
	testServerName(t, []string{"", "a.example"}, "")
}

func testServerName(t *testing.T, names []string, want string) {
	t.Helper()
	s := &Session{server: &Server{ServerName: names}}
	if got, _ := s.placeholder("stream.server_name"); got != want {
		t.Errorf("$server_name of %q = %q, want %q", names, got, want)
	}
}

func TestAServerNeedsANameThatIsNotEmpty(t *testing.T) {
	if err := (&Server{ServerName: []string{""}}).readNames(); err == nil {
		t.Error("an empty name alone is accepted")
	}
	if err := (&Server{ServerName: []string{"", "a.example"}}).readNames(); err != nil {
		t.Errorf("an empty name before another: %v", err)
	}
}

func TestServersOfACaddyfileStandInItsOrder(t *testing.T) {
	names := []string{"srv10", "b", "srv2", "srv", "srv1", "stream010", "stream002", "srv02"}
	slices.SortFunc(names, byNumber)
	if want := []string{"b", "srv", "srv1", "srv02", "srv2", "srv10", "stream002", "stream010"}; !slices.Equal(names, want) {
		t.Errorf("the order is %q, want %q", names, want)
	}
}
