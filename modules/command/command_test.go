// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func TestFieldsBecomeTheirJSON(t *testing.T) {
	got, err := fields([]string{"weight=5", "drain=true", "down=", "fail_timeout=30s", "id=7", "max_fails=0"})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(got)
	const want = `{"down":null,"drain":true,"fail_timeout":"30s","id":"7","max_fails":0,"weight":5}`
	if string(raw) != want {
		t.Errorf("fields = %s, want %s", raw, want)
	}
	for _, bad := range []string{"weight", "=5"} {
		if _, err := fields([]string{bad}); err == nil {
			t.Errorf("fields(%q): no error", bad)
		}
	}
}

func TestColumnsStayStraightInColour(t *testing.T) {
	groups := []upstream.GroupState{{Name: "app", Servers: []upstream.ServerState{
		{ID: "10.0.0.1:80", Weight: 5, State: upstream.LiveState{State: "up", EffectiveWeight: 5}},
		{ID: "10.0.0.22:80", Weight: 5, Backup: true, State: upstream.LiveState{State: "unhealthy", UnhealthyFor: "3s", EffectiveWeight: 2, LastError: "connect: refused"}},
	}}}
	var plain, coloured bytes.Buffer
	if err := table(&plain, groups, false); err != nil {
		t.Fatal(err)
	}
	if err := table(&coloured, groups, true); err != nil {
		t.Fatal(err)
	}
	stripped := coloured.String()
	for _, code := range []string{"39", "32", "31", "90", "33", "35", "0"} {
		stripped = strings.ReplaceAll(stripped, "\x1b["+code+"m", "")
	}
	if diff := cmp.Diff(plain.String(), stripped); diff != "" {
		t.Errorf("colours move columns:\n%s", diff)
	}
	if !strings.Contains(plain.String(), "unhealthy 3s (backup)  2/5") {
		t.Errorf("table:\n%s", plain.String())
	}
}

// TestCommandsMakeTheRequestsTheySay runs each command against a server that
// notes what it is asked.
func TestCommandsMakeTheRequestsTheySay(t *testing.T) {
	var got string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.RequestURI() + " " + string(body)
		if strings.Contains(r.URL.Path, "nope") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"no group \"nope\""}`)
			return
		}
		if strings.Contains(r.URL.Path, "stays") {
			_, _ = io.WriteString(w, `{"lasts":"until tomorrow"}`)
			return
		}
		_, _ = io.WriteString(w, `{"groups":[]}`)
	}))
	defer admin.Close()
	for _, c := range []struct{ args, want string }{
		{"list", "GET /upstream/groups "},
		{"list app", "GET /upstream/groups/app "},
		{"show app unix//run/a.sock", "GET /upstream/groups/app/servers/unix%2F%2Frun%2Fa.sock "},
		{"add app 10.0.0.1:80 weight=2", `POST /upstream/groups/app/servers {"address":"10.0.0.1:80","weight":2}`},
		{"set app a weight=", `PATCH /upstream/groups/app/servers/a {"weight":null}`},
		{"drain app a", `PATCH /upstream/groups/app/servers/a {"drain":true}`},
		{"drain app a --deadline 30s", `PATCH /upstream/groups/app/servers/a?drain_timeout=30s {"drain":true}`},
		{"remove app a --deadline 1m", "DELETE /upstream/groups/app/servers/a?drain_timeout=1m "},
		{"enable app a", `PATCH /upstream/groups/app/servers/a {"down":null,"drain":null}`},
		{"remove app a", "DELETE /upstream/groups/app/servers/a "},
		{"reset app", "POST /upstream/groups/app/reset "},
	} {
		if _, err := run(t, admin, c.args); err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		if got != c.want {
			t.Errorf("%s asks %q, want %q", c.args, got, c.want)
		}
	}
	out, err := run(t, admin, "drain stays a")
	if want := "changed a of stays; this lasts until tomorrow\n"; err != nil || out != want {
		t.Errorf("drain prints %q, %v; want %q", out, err, want)
	}
	if out, err := run(t, admin, "drain stays a --json"); err != nil || out != `{"lasts":"until tomorrow"}` {
		t.Errorf("drain --json prints %q, %v", out, err)
	}
	if _, err := run(t, admin, "remove nope a"); err == nil || err.Error() != `no group "nope"` {
		t.Errorf("error = %v, want the API's own words", err)
	}
}

// TestWatchDrawsAgainUntilItIsInterrupted is for a pipe: no colours, no moves of
// the cursor.
func TestWatchDrawsAgainUntilItIsInterrupted(t *testing.T) {
	weight := make(chan int, 10)
	for n := range 10 {
		weight <- n + 41
	}
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"name":"app","servers":[{"id":"a","weight":%d,"state":{"state":"up"}}]}`, <-weight)
	}))
	defer admin.Close()
	r, w := io.Pipe()
	root := &cobra.Command{Use: "upstream", SilenceErrors: true}
	build(root)
	root.SetOut(w)
	root.SetArgs([]string{"list", "app", "--watch", "--address", admin.Listener.Addr().String()})
	ended := make(chan error, 1)
	go func() {
		ended <- root.Execute()
		w.Close()
	}()
	text := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if text += lines.Text() + "\n"; strings.Contains(lines.Text(), "0/42") {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Signal(os.Interrupt)
			}
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, r)
			break
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("watch ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("watch does not end")
	}
	if !strings.Contains(text, "0/41") || strings.Contains(text, "\x1b") {
		t.Errorf("watch in a pipe: %q", text)
	}
}

func run(t *testing.T, admin *httptest.Server, args string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "upstream", SilenceErrors: true}
	build(root)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append(strings.Fields(args), "--address", admin.Listener.Addr().String()))
	err := root.Execute()
	return out.String(), err
}
