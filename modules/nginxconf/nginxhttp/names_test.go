// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"net/http"
	"testing"
)

func TestNamesOfServersAreComparedAsNginxDoes(t *testing.T) {
	names, err := newServerNames([]string{"Example.com", "*.example.org", "www.*", `~^(?<sub>\w+)\.NET$`, ""})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"example.com": "yes", "EXAMPLE.com.:80": "yes", "a.example.com": "no", "a.b.example.org.": "yes", "example.org": "no", ".example.org": "no",
		"www.x": "yes", "www.": "no", "www..x": "no", "foo.net": "foo", "FOO.net.": "foo", "": "yes", "[::1]:80": "no", "example.com..": "no",
	} {
		c, ok := names.match(requestHost(&http.Request{Host: host}))
		got := map[bool]string{false: "no", true: "yes"}[ok]
		if ok && c.regex != nil {
			got = c.groups[1]
		}
		if got != want {
			t.Errorf("%q is a name: %s, want %s", host, got, want)
		}
	}
	if _, err := newServerNames([]string{"~("}); err == nil {
		t.Error("a broken expression is accepted")
	}
}

func TestTheFormOfATargetIsThatOfThePath(t *testing.T) {
	for in, want := range map[string]string{
		"/a?b": "/a?b", "http://h/a?b": "/a?b", "http://h": "/", "http://h?q=/x": "?q=/x", "https://h:81/": "/", "*": "*", "h:80": "h:80", "/a://b": "/a://b",
	} {
		if got := originForm(in); got != want {
			t.Errorf("originForm(%q) = %q, want %q", in, got, want)
		}
	}
}
