// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// ask makes a request of the API as Caddy's admin endpoint does.
func ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	if err := (adminAPI{}).serve(w, r); err != nil {
		var e caddy.APIError
		if !errors.As(err, &e) {
			e = caddy.APIError{HTTPStatus: 500, Message: err.Error()}
		}
		w.WriteHeader(e.HTTPStatus)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": e.Message})
	}
	return w
}

// sentenceOf is the error of an answer.
func sentenceOf(w *httptest.ResponseRecorder) string {
	var answer struct{ Error string }
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return answer.Error
}

// running is a started group of these servers until the end of the test.
func runningGroup(t testing.TB, name string, servers ...string) *Runtime {
	t.Helper()
	r := held(t, name)
	if err := r.push(testGeneration(servers...), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	return r
}

func configured(r *Runtime) string {
	raw, err := json.Marshal(func() (out []*Server) {
		for _, l := range r.linesLocked() {
			out = append(out, l.server)
		}
		return out
	}())
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestARefusedChangeSaysWhyAndChangesNothing(t *testing.T) {
	r := runningGroup(t, "refuse", "a", "b")
	before, tag := configured(r), ask("GET", "/upstream/groups/refuse", "").Header().Get("ETag")
	snapshot := r.group.Snapshot(time.Now())
	const servers = "/upstream/groups/refuse/servers"
	for _, c := range []struct {
		method, path, body, header string
		status                     int
		says                       string
	}{
		{"POST", servers, `{`, "", 400, "not JSON: the text ends too early"},
		{"POST", servers, `{"address":"10.0.0.1:80"`, "", 400, "not JSON: the text ends too early"},
		{"POST", servers, `[]`, "", 400, "expected a JSON object"},
		{"POST", servers, `null`, "", 400, "expected a JSON object"},
		{"POST", servers, `{}`, "", 400, `field "address" is missing`},
		{"POST", servers, `{"address":"10.0.0.1:80"}}`, "", 400, "unexpected text after the JSON object"},
		{"POST", servers, `{"address":"10.0.0.1:80"} {}`, "", 400, "unexpected text after the JSON object"},
		{"POST", servers, `{"address":"10.0.0.1:80","wieght":2}`, "", 400, `unknown field "wieght"`},
		{"POST", servers, `{"address":"10.0.0.1:80","Weight":2}`, "", 400, `unknown field "Weight"`},
		{"POST", servers, `{"address":"10.0.0.1:80","weight":2,"weight":3}`, "", 400, `field "weight" given twice`},
		{"POST", servers, `{"address":"10.0.0.1:80","weight":"2"}`, "", 400, `field "weight": got a JSON string, expected a whole number`},
		{"POST", servers, `{"address":"10.0.0.1:80","weight":1.5}`, "", 400, `field "weight": got a JSON number 1.5, expected a whole number`},
		{"POST", servers, `{"address":"10.0.0.1:80","weight":-1}`, "", 400, "server 10.0.0.1:80: weight -1: must be 1 or more; use down or drain to take a server out"},
		{"POST", servers, `{"address":"10.0.0.1:80","max_conns":-1}`, "", 400, "server 10.0.0.1:80: max_conns -1: must not be negative"},
		{"POST", servers, `{"address":"10.0.0.1:80","fail_timeout":"soon"}`, "", 400, `field "fail_timeout": time: invalid duration "soon"`},
		{"POST", servers, `{"address":"10.0.0.1:80","down":"yes"}`, "", 400, `field "down": got a JSON string, expected true or false`},
		{"POST", servers, "{\"address\":\"\xff\"}", "", 400, "not JSON: invalid UTF-8"},
		{"POST", servers, `{"address":"app.test:80","resolve":true}`, "", 400, "server app.test:80: resolve: no resolver is in this build"},
		{"POST", servers, `{"id":"a","address":"10.0.0.1:80"}`, "", 409, "server a is there already"},
		{"POST", servers, `{"address":"10.0.0.1:80"}`, `If-Match "0000000000000000"`, 412, ""},
		{"POST", servers, `{"address":"10.0.0.1:80"}`, "If-Match W/" + tag, 412, ""},
		{"POST", servers, `{"address":"10.0.0.1:80"}`, "Content-Type text/plain", 415, `Content-Type "text/plain": expected application/json`},
		{"POST", servers, `{"address":"` + strings.Repeat("x", maxBody) + `"}`, "", 413, "the body is larger than 1048576 bytes"},
		{"PATCH", servers + "/a", `{"weight":0}`, "", 400, "weight 0: must be 1 or more; use down or drain to take a server out"},
		{"PATCH", servers + "/a", `{"weight":5,"max_fails":-1}`, "", 400, "max_fails -1: must not be negative"},
		{"PATCH", servers + "/a", `{"weight":5,"nope":null}`, "", 400, `unknown field "nope"`},
		{"PATCH", servers + "/a", `{"ID":"x"}`, "", 400, `unknown field "ID"`},
		{"PATCH", servers + "/a", `{"id":"x"}`, "", 400, `field "id" cannot be changed: add a server with the new id and remove this one`},
		{"PATCH", servers + "/a", `{"address":null}`, "", 400, `field "address" cannot be changed: add a server with the new address and remove this one`},
		{"PATCH", servers + "/a", `null`, "", 400, "expected a JSON object"},
		{"PATCH", servers + "/c", `{"weight":5}`, "", 404, `no server "c" in group "refuse"`},
		{"PATCH", servers + "/a", `{"weight":5}`, `If-Match "0000000000000000"`, 412, ""},
		{"DELETE", servers + "/c", "", "", 404, `no server "c" in group "refuse"`},
		{"DELETE", servers + "/a", "", `If-Match "0000000000000000"`, 412, ""},
		{"GET", servers + "/c", "", "", 404, `no server "c" in group "refuse"`},
		{"GET", "/upstream/groups/none", "", "", 404, `no group "none"`},
		{"GET", "/upstream/groups/refuse/other", "", "", 404, "no such resource: expected /upstream/groups/{group}/servers/{id}"},
		{"PUT", servers, `{}`, "", 405, "method PUT is not supported here: expected GET, POST"},
		{"DELETE", servers, "", "", 405, "method DELETE is not supported here: expected GET, POST"},
		{"POST", servers + "/a", `{}`, "", 405, "method POST is not supported here: expected GET, PATCH, DELETE"},
		{"GET", "/upstream/groups/refuse/reset", "", "", 405, "method GET is not supported here: expected POST"},
		{"POST", "/upstream/groups", `{}`, "", 405, "method POST is not supported here: expected GET"},
	} {
		var header []string
		if name, value, ok := strings.Cut(c.header, " "); ok {
			header = []string{name, value}
		}
		w := ask(c.method, c.path, c.body, header...)
		says := sentenceOf(w)
		if w.Code != c.status || says == "" || c.says != "" && says != c.says {
			t.Errorf("%s %s %.60s %s: status %d, %q; want %d, %q", c.method, c.path, c.body, c.header, w.Code, says, c.status, c.says)
		}
		if c.status == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
		if got := configured(r); got != before {
			t.Fatalf("%s %s %s changed the servers to %s", c.method, c.path, c.body, got)
		}
	}
	if diff := cmp.Diff(snapshot, r.group.Snapshot(time.Now())); diff != "" {
		t.Errorf("the live state changed:\n%s", diff)
	}
}

func TestTheLastPrimaryServerCannotBeTakenAway(t *testing.T) {
	r := runningGroup(t, "last", "a", "b")
	if w := ask("PATCH", "/upstream/groups/last/servers/b", `{"backup":true}`); w.Code != 200 {
		t.Fatalf("making b a backup: %d %s", w.Code, w.Body)
	}
	before := configured(r)
	for _, c := range [][2]string{{"PATCH", `{"backup":true}`}, {"DELETE", ""}} {
		w := ask(c[0], "/upstream/groups/last/servers/a", c[1])
		if w.Code != 409 || sentenceOf(w) != errNoPrimary.Error() || configured(r) != before {
			t.Errorf("%s: %d %q, servers %s", c[0], w.Code, sentenceOf(w), configured(r))
		}
	}
}

func TestServersAreAddedChangedAndRemoved(t *testing.T) {
	r := runningGroup(t, "change", "a")
	const servers = "/upstream/groups/change/servers"
	tag := ask("GET", servers, "").Header().Get("ETag")

	w := ask("POST", servers, `{"id":"x/y z","address":"10.0.0.1:80","weight":4,"max_fails":null}`, "If-Match", tag)
	if w.Code != 201 || w.Header().Get("Location") != servers+"/x%2Fy%20z" {
		t.Fatalf("POST: %d, Location %q, %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	var answer struct {
		Server Server
		Lasts  string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Server.ID != "x/y z" || answer.Lasts != lasting {
		t.Errorf("POST answers %s", w.Body)
	}
	path := w.Header().Get("Location")
	second := w.Header().Get("ETag")
	if second == tag || ask("GET", servers, "").Header().Get("ETag") != second {
		t.Errorf("ETag %s after %s, and the list has %s", second, tag, ask("GET", servers, "").Header().Get("ETag"))
	}

	w = ask("PATCH", path, `{"weight":7,"fail_timeout":"3s","drain":true}`, "If-Match", `"other", `+second)
	if w.Code != 200 {
		t.Fatalf("PATCH: %d %s", w.Code, w.Body)
	}
	var s ServerState
	read := func() {
		s = ServerState{}
		if w := ask("GET", path, ""); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &s) != nil {
			t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
	if read(); s.Weight != 7 || s.FailTimeout != "3s" || !s.Drain || s.State.State != "draining" {
		t.Errorf("after PATCH: %+v", s)
	}
	if w = ask("PATCH", path, `{"weight":null,"fail_timeout":null,"drain":null}`); w.Code != 200 {
		t.Fatalf("PATCH with null: %d %s", w.Code, w.Body)
	}
	if read(); s.Weight != 1 || s.FailTimeout != "10s" || s.Drain || s.State.State != "up" {
		t.Errorf("after PATCH with null: %+v, want the defaults", s)
	}
	third := w.Header().Get("ETag")
	if w = ask("DELETE", path, "", "If-Match", third); w.Code != 200 || w.Body.String() != `{"lasts":"`+lasting+"\"}\n" || w.Header().Get("ETag") != tag {
		t.Errorf("DELETE: %d %s, ETag %s, want that of the first list, %s", w.Code, w.Body, w.Header().Get("ETag"), tag)
	}
	if got := members(r); !slices.Equal(got, []string{"a"}) {
		t.Errorf("members %v, want a", got)
	}
}

func TestARemovedServerFinishesWhatItHolds(t *testing.T) {
	r := runningGroup(t, "finish", "a", "b")
	var s peer.Session
	s.Begin(r.group, peer.SessionOptions{})
	lease, err := s.Next(time.Now())
	if err != nil || lease.Peer().ID() != "a" {
		t.Fatal(lease, err)
	}
	if w := ask("DELETE", "/upstream/groups/finish/servers/a", ""); w.Code != 200 {
		t.Fatalf("DELETE: %d %s", w.Code, w.Body)
	}
	var st ServerState
	w := ask("GET", "/upstream/groups/finish/servers/a", "")
	if json.Unmarshal(w.Body.Bytes(), &st) != nil || st.State.State != "removed" || st.State.Conns != 1 {
		t.Errorf("removed and in use: %d %s", w.Code, w.Body)
	}
	lease.Done(peer.Success, time.Now())
	if w := ask("GET", "/upstream/groups/finish/servers/a", ""); w.Code != 404 {
		t.Errorf("removed and free: %d %s", w.Code, w.Body)
	}
}

// named starts a group with one server that has these addresses.
func namedGroup(t *testing.T, name string, addresses ...string) *Runtime {
	t.Helper()
	g := testGeneration("a")
	l := line{server: &Server{Address: "app.test:80"}}
	for _, a := range addresses {
		p := g.lines[0].peers[0]
		p.ID, p.Address, p.Name, p.Line = "app.test:80/"+a, a, a, "app.test:80"
		l.peers = append(l.peers, p)
	}
	r := held(t, name)
	if err := r.push(g.with(append(g.lines, l)), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAServerWithSeveralAddressesIsFoundByItsID(t *testing.T) {
	r := namedGroup(t, "several", "10.0.0.1:80", "10.0.0.2:80")
	const path = "/upstream/groups/several/servers/app.test:80"
	var s ServerState
	if w := ask("GET", path, ""); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &s) != nil {
		t.Fatalf("GET: %d %s", w.Code, w.Body)
	}
	if s.ID != "app.test:80" || len(s.Peers) != 2 || s.Peers[1].Address != "10.0.0.2:80" || s.Peers[1].Server != s.ID || s.State.EffectiveWeight != 2 {
		t.Errorf("GET: %+v, want both addresses", s)
	}
	if w := ask("GET", path+"%2F10.0.0.2:80", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"server":"app.test:80"`) {
		t.Errorf("GET of one address: %d %s", w.Code, w.Body)
	}
	if w := ask("PATCH", path+"%2F10.0.0.2:80", `{"drain":true}`); w.Code != 404 ||
		sentenceOf(w) != `"app.test:80/10.0.0.2:80" is one address of server "app.test:80" of group "several": change that one` {
		t.Errorf("PATCH of one address: %d %s", w.Code, w.Body)
	}
	if w := ask("PATCH", path, `{"weight":3,"drain":true}`); w.Code != 200 {
		t.Fatalf("PATCH: %d %s", w.Code, w.Body)
	}
	for _, p := range r.group.Peers()[1:] {
		if c := p.Server(); c.Weight != 3 || !c.Drain || c.ID != "app.test:80/"+c.Address {
			t.Errorf("after PATCH: %+v", c)
		}
	}
	if w := ask("DELETE", path, ""); w.Code != 200 || len(r.group.Peers()) != 1 {
		t.Errorf("DELETE: %d %s, %d peers left, want 1", w.Code, w.Body, len(r.group.Peers()))
	}
}

func TestAServerWithoutAddressesIsShown(t *testing.T) {
	namedGroup(t, "nowhere")
	for path, want := range map[string]int{"/upstream/groups/nowhere/servers": 2, "/upstream/groups/nowhere/servers/app.test:80": 1} {
		w := ask("GET", path, "")
		if n := strings.Count(w.Body.String(), `"address"`); n != want || !strings.Contains(w.Body.String(), `"state":"unresolved"`) {
			t.Errorf("GET %s: %s", path, w.Body)
		}
	}
}

func TestTheListOfAHandlerIsReadOnly(t *testing.T) {
	r, err := acquire(runtimeKey{name: "list", list: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	if err := r.push(testGeneration("a"), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	w := ask("PATCH", "/upstream/groups/list/servers/a", `{"weight":2}`)
	if w.Code != 409 || !strings.Contains(sentenceOf(w), "change the configuration instead") {
		t.Errorf("PATCH: %d %s", w.Code, w.Body)
	}
}

func TestResetSetsCountersToZeroAndNothingElse(t *testing.T) {
	r := runningGroup(t, "reset", "a")
	var s peer.Session
	s.Begin(r.group, peer.SessionOptions{})
	lease, _ := s.Next(time.Now())
	lease.Done(peer.Failed, time.Now())
	tag := ask("GET", "/upstream/groups/reset", "").Header().Get("ETag")
	if w := ask("POST", "/upstream/groups/reset/reset", ""); w.Code != 204 {
		t.Fatalf("reset: %d %s", w.Code, w.Body)
	}
	if st := r.group.Snapshot(time.Now())[0]; st.Picks != 0 || st.Failures != 0 || st.LastError != "" {
		t.Errorf("after reset: %+v", st)
	}
	if got := ask("GET", "/upstream/groups/reset", "").Header().Get("ETag"); got != tag {
		t.Errorf("ETag %s, want %s: counters are no part of it", got, tag)
	}
}

// TestOneOfManyConditionalChangesWins has many clients add a server on the
// condition that nobody else has.
func TestOneOfManyConditionalChangesWins(t *testing.T) {
	r := runningGroup(t, "race", "a")
	tag := ask("GET", "/upstream/groups/race", "").Header().Get("ETag")
	codes := make([]int, 16)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			codes[i] = ask("POST", "/upstream/groups/race/servers", fmt.Sprintf(`{"address":"10.0.0.%d:80"}`, i), "If-Match", tag).Code
		})
	}
	wg.Wait()
	slices.Sort(codes)
	if codes[0] != http.StatusCreated || codes[1] != http.StatusPreconditionFailed || len(members(r)) != 2 {
		t.Errorf("statuses %v, %d members; want one 201, the rest 412, and two members", codes, len(members(r)))
	}
}

// FuzzChange sends any body in any way: the answer is a success that is
// wholly there, or a refusal in words that leaves all as it was.
func FuzzChange(f *testing.F) {
	for _, body := range []string{
		`{"address":"10.0.0.1:80"}`, `{"weight":5}`, `{"weight":null,"drain":true}`, `{"id":"é/\u0000","address":"unix//run/a.sock"}`,
		`{"weight":1e3}`, `{"fail_timeout":"-1s"}`, `{"address":"[::1]:80","max_conns":9223372036854775808}`, `{"a":{"a":[1,{}]}}`, `"`, "{\"\xff\":1}",
	} {
		f.Add(true, body)
		f.Add(false, body)
	}
	r, err := acquire(runtimeKey{name: "fuzz"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, add bool, body string) {
		if add && strings.Contains(body, "address") && !strings.Contains(body, "10.0.0.1:80") {
			return // no name is looked up
		}
		start := testGeneration("a", "b")
		if err := r.push(start, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		defer r.drop(start)
		before := configured(r)
		method, path := "PATCH", "/upstream/groups/fuzz/servers/a"
		if add {
			method, path = "POST", "/upstream/groups/fuzz/servers"
		}
		w := ask(method, path, body, "Content-Type", "application/json")
		switch {
		case w.Code == 200 || w.Code == 201:
			if add && len(members(r)) != 3 || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %q: %d, members %v, %s", method, body, w.Code, members(r), w.Body)
			}
		case w.Code >= 400 && w.Code < 500:
			if sentenceOf(w) == "" || configured(r) != before {
				t.Errorf("%s %q: %d %s, servers %s", method, body, w.Code, w.Body, configured(r))
			}
		default:
			t.Errorf("%s %q: status %d", method, body, w.Code)
		}
	})
}
