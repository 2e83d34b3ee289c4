// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestEachListHasANameOfItsOwnThatStays(t *testing.T) {
	take := func(key runtimeKey, id string) *Runtime {
		t.Helper()
		r, err := acquire(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.push(testGeneration(id), zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	list := func(n int) *Runtime {
		return take(runtimeKey{name: "10.0.0.1-80", list: fmt.Sprint(n)}, fmt.Sprintf("server%d", n))
	}
	names := func() string {
		var out []string
		for _, r := range allRuntimes() {
			if r.key.name == "10.0.0.1-80" {
				out = append(out, r.id)
			}
		}
		return strings.Join(out, " ")
	}
	first, second, third := list(9), list(8), list(7)
	if got := names(); got != "10.0.0.1-80 10.0.0.1-80#2 10.0.0.1-80#3" {
		t.Errorf("names %q", got)
	}
	group := take(runtimeKey{name: "10.0.0.1-80"}, "member")
	if got := names(); got != "10.0.0.1-80 10.0.0.1-80#1 10.0.0.1-80#2 10.0.0.1-80#3" {
		t.Errorf("beside a group of that name: %q", got)
	}
	for path, want := range map[string]string{"10.0.0.1-80": "member", "10.0.0.1-80%231": "server9", "10.0.0.1-80%233": "server7"} {
		if w := ask("GET", "/upstream/groups/"+path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"id":"`+want+`"`) {
			t.Errorf("GET %s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	if w := ask("PATCH", "/upstream/groups/10.0.0.1-80/servers/member", `{"weight":3}`); w.Code != 200 {
		t.Errorf("PATCH of the group's server: %d %s", w.Code, w.Body)
	}
	if w := ask("PATCH", "/upstream/groups/10.0.0.1-80%231/servers/server9", `{"weight":3}`); w.Code != 409 {
		t.Errorf("PATCH of a list's server: %d %s, want 409", w.Code, w.Body)
	}
	_ = group.release()
	_ = second.release()
	if got := names(); got != "10.0.0.1-80 10.0.0.1-80#3" {
		t.Errorf("after the second is gone: %q, want the others as they were", got)
	}
	second = list(6)
	if got := names(); got != "10.0.0.1-80 10.0.0.1-80#2 10.0.0.1-80#3" {
		t.Errorf("a new list: %q, want the free number", got)
	}
	for _, r := range []*Runtime{first, second, third} {
		_ = r.release()
	}
	if len(listNumbers.used["10.0.0.1-80"]) > 0 {
		t.Errorf("numbers %v are left", listNumbers.used)
	}
}
