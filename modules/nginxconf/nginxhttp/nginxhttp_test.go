// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"testing"
)

func TestPathsAreNormalisedAsNginxDoes(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "//a///b//": "/a/b/", "/a/./b": "/a/b", "/a/../b": "/b", "/a/..": "/", "/a/.": "/a/",
		"/%61%2Fb": "/a/b", "/a%20b": "/a b", "/a/%2e%2e/b": "/b", "/a#b": "/a", "/..a/.b": "/..a/.b",
		"/..": "!", "/a/../..": "!", "": "!", "a": "!", "/%": "!", "/%4": "!", "/%zz": "!", "/%00": "!", "*": "!",
	} {
		got, _, err := normalise(in, true)
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("normalise(%q) = %q, want %q", in, got, want)
		}
	}
	if got, _, _ := normalise("//a//b", false); got != "//a//b" {
		t.Errorf("without merging = %q, want //a//b", got)
	}
}

// What is not an escape in the path has to survive decoding and escaping.
func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%41", "//x", "/a/.", "/%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		uri, _, err := normalise(s, true)
		if err != nil {
			return
		}
		again, _, err := normalise(escapeURI(uri), true)
		if err != nil {
			t.Fatalf("normalise(escapeURI(%q)): %v", uri, err)
		}
		if final, _, err := normalise(escapeURI(again), true); err != nil || final != again {
			t.Fatalf("normalise is not stable for %q: %q, then %q, %v", s, again, final, err)
		}
	})
}

// locations builds a server for the tests of the choice.
func locations(t *testing.T, ls ...*Location) *Location {
	t.Helper()
	root := &Location{Locations: ls}
	for _, l := range ls {
		l.MaxBody = -1
	}
	if err := compileForTest(root); err != nil {
		t.Fatal(err)
	}
	return root
}

func compileForTest(l *Location) error {
	for _, c := range l.Locations {
		if err := c.compile(); err != nil {
			return err
		}
		if err := compileForTest(c); err != nil {
			return err
		}
	}
	return nil
}

func TestTheLocationIsChosenInNginxsOrder(t *testing.T) {
	root := locations(t,
		&Location{Path: "/"},
		&Location{Modifier: "=", Path: "/exact"},
		&Location{Path: "/exact"},
		&Location{Modifier: "^~", Path: "/static/"},
		&Location{Path: "/static/deep/"},
		&Location{Path: "/proxied/", AutoRedirect: true},
		&Location{Modifier: "~", Path: `\.png$`},
		&Location{Modifier: "~*", Path: `\.JPG$`},
		&Location{Path: "/out/", Locations: []*Location{{Path: "/out/in/"}, {Modifier: "~", Path: `x$`}}},
		&Location{Modifier: "@", Path: "name"},
	)
	for uri, want := range map[string]string{
		"/exact": "=/exact", "/exact/": "/exact", "/static/a.png": "^~/static/", "/static/deep/a.png": `~\.png$`,
		"/b.jpg": `~*\.JPG$`, "/out/in/y": "/out/in/", "/out/x": "~x$", "/out/in/x": "~x$", "/out/a.png": `~\.png$`,
		"/proxied": "redirect /proxied/", "/proxied/": "/proxied/", "/name": "/", "/": "/",
	} {
		c, _ := root.find(uri)
		got := ""
		if c.redirect != "" {
			got = "redirect " + c.redirect
		} else {
			got = c.location.Modifier + c.location.Path
		}
		if got != want {
			t.Errorf("find(%q) = %q, want %q", uri, got, want)
		}
	}
}

func TestLogValuesAreEscapedAsTheFormatSays(t *testing.T) {
	for _, c := range []struct {
		value string
		set   bool
		how   string
		want  string
	}{
		{"", false, "", "-"}, {"", true, "", ""}, {"a\"b\\c\n\xff", true, "", `a\x22b\x5Cc\x0A\xFF`}, {"ok", true, "default", "ok"},
		{"", false, "json", ""}, {"a\"\n", true, "json", `a\"\n`}, {"", false, "none", ""}, {"a\"", true, "none", `a"`},
	} {
		if got := escapeLog(c.value, c.set, c.how); got != c.want {
			t.Errorf("escapeLog(%q, %v, %q) = %q, want %q", c.value, c.set, c.how, got, c.want)
		}
	}
}
