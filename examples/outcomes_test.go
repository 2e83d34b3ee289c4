// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// promise is a command in the header of an example and what it prints:
//
//	#   curl -s localhost:8080      # a
//
// Words in parentheses at the end are not printed; "(soon)" says that something
// else may be for a while. If nothing is promised, something is printed. What
// takes more than curl is no promise here: stream_test.go.
type promise struct {
	command string
	want    string // the words of the output
	soon    bool
}

var (
	promiseLine = regexp.MustCompile(`(?m)^#   (\S.*\S) +# (.+)$`)
	remark      = regexp.MustCompile(`\s*\(([a-z' ]+)\)$`)
)

// headerOf returns the comment that the Caddyfile beside path begins with.
func headerOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "Caddyfile"))
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(string(text), "\n{")
	return strings.ReplaceAll(header, "\\\n#     ", "")
}

func promisesOf(header string) []promise {
	var out []promise
	for _, m := range promiseLine.FindAllStringSubmatch(header, -1) {
		if !strings.Contains(m[1], "curl") {
			continue
		}
		p := promise{command: m[1], want: " " + m[2]}
		if r := remark.FindStringSubmatch(p.want); r != nil {
			p.want = strings.TrimSuffix(p.want, r[0])
			p.soon = r[1] == "soon"
		}
		p.want = strings.TrimSpace(p.want)
		out = append(out, p)
	}
	return out
}

// unproven are the examples whose headers promise nothing: they need a browser,
// databases or resolvers.
var unproven = []string{"dashboard", "stream-databases", "stream-dns", "stream-proxy-protocol", "stream-sni"}

func TestEveryExampleShowsWhatItsHeaderSays(t *testing.T) {
	shell := testnet.Need(t, "bash")
	testnet.Need(t, "curl")
	for _, path := range find(t, ".") {
		name := filepath.Dir(path)
		header := headerOf(t, path)
		promises := promisesOf(header)
		if none := slices.Contains(unproven, name); none == (len(promises) > 0) {
			t.Errorf("%s promises %d outputs; without any: %v", path, len(promises), unproven)
		}
		if len(promises) == 0 {
			continue
		}
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			t.Parallel()
			config, ports := exchangePorts(untrusted(t, check(t, path)))
			for try := 1; ; try++ {
				e := &shown{shell: shell, caddy: testnet.StartCaddy(t, config, nil), ports: ports}
				broken := e.breaks(t, promises)
				if len(broken) == 0 {
					e.checkLog(t, name, header)
					return
				}
				// What a dead server costs depends on when it was found out.
				if try == 5 || e.own < 4*time.Second {
					t.Fatalf("%s", strings.Join(broken, "\n"))
				}
				e.caddy.StopGracefully(time.Minute)
			}
		})
	}
}

// shown is an example that runs on other ports than it says.
type shown struct {
	shell string
	caddy *testnet.Caddy
	ports map[string]string // names of the ports that it says
	own   time.Duration     // what commands have taken, without their sleep
}

var (
	aNumber = regexp.MustCompile(`\b\d{2,5}\b`)
	aSleep  = regexp.MustCompile(`\bsleep (\d+)`)
)

// here exchanges the ports that an example says for those that it has, and back.
func (e *shown) here(text string) string {
	return aNumber.ReplaceAllStringFunc(text, func(port string) string {
		if e.ports[port] == "" {
			return port
		}
		_, here, _ := strings.Cut(e.caddy.Addr(e.ports[port]), ":")
		return here
	})
}

func (e *shown) back(text string) string {
	there := map[string]string{}
	for port := range e.ports {
		there[e.here(port)] = port
	}
	return aNumber.ReplaceAllStringFunc(text, func(here string) string {
		if port := there[here]; port != "" {
			return port
		}
		return here
	})
}

// breaks returns the promises that are not kept. After one the others are void.
func (e *shown) breaks(t *testing.T, promises []promise) []string {
	t.Helper()
	for _, p := range promises {
		got := ""
		kept := func() bool {
			got = e.words(t, p.command)
			if p.want == "" {
				return got != ""
			}
			return got == p.want || ports.MatchString(p.want) && letters(got) == p.want
		}
		if p.soon && testnet.Poll(30*time.Second, kept) || !p.soon && kept() {
			continue
		}
		return []string{fmt.Sprintf("%s\nprints %s\nwant   %s", p.command, got, p.want)}
	}
	return nil
}

// words runs a command and returns the words of its output, with one space
// between them.
func (e *shown) words(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.shell, "-c", e.here(command))
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*", "HOME="+t.TempDir())
	began := time.Now()
	out, err := cmd.Output()
	e.own += time.Since(began)
	for _, m := range aSleep.FindAllStringSubmatch(command, -1) {
		d, _ := time.ParseDuration(m[1] + "s")
		e.own -= d
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Join(strings.Fields(e.back(string(out))), " ")
}

// ports are outputs for which letters stand.
var ports = regexp.MustCompile(`^[pqr]( [pqr])*$`)

// letters replaces each word by a letter, in order of appearance: p, q, r.
func letters(words string) string {
	seen := map[string]string{}
	out := strings.Fields(words)
	for i, v := range out {
		if seen[v] == "" {
			seen[v] = string(rune('p' + len(seen)))
		}
		out[i] = seen[v]
	}
	return strings.Join(out, " ")
}

// inTheLog is what headers say of the log: the values of a field in the lines
// with a message begin so.
var inTheLog = []struct {
	example, msg string
	where        map[string]any
	field, want  string
	saying       string // in the header
}{
	{"quickstart", "peer selected", nil, "current_weight", "-2 -4 -4 -1 -2 2 0",
		`"peer selected" for each request, with the weight that the server is left with: its current_weight is -2 -4 -4 -1 -2 2 0`},
	{"weights", "server temporarily disabled", nil, "server", "127.0.0.1:9009", `one line "server temporarily disabled"`},
	{"failures", "server temporarily disabled", map[string]any{"group": "app"}, "server", "127.0.0.1:9009",
		`one line "server temporarily disabled"`},
	{"failures", "handled request", map[string]any{"upstream_name": "app", "upstream_status": "502, 200"},
		"upstream_addr", "127.0.0.1:9009, 127.0.0.1:9001", "has upstream_addr and upstream_status as nginx prints them"},
	{"failures", "no live upstreams", nil, "group", "dead", `"no live upstreams"`},
}

func (e *shown) checkLog(t *testing.T, example, header string) {
	t.Helper()
	flat := strings.Join(strings.Fields(strings.ReplaceAll(header, "\n#", " ")), " ")
	for _, l := range inTheLog {
		if l.example != example {
			continue
		}
		if !strings.Contains(flat, l.saying) {
			t.Errorf("the header does not say: %s", l.saying)
		}
		got := ""
		testnet.Poll(30*time.Second, func() bool {
			var values []string
			for _, line := range e.caddy.Logs(l.msg) {
				if line.Has(l.where) {
					values = append(values, fmt.Sprint(line.Fields[l.field]))
				}
			}
			got = e.back(strings.Join(values, " "))
			return strings.HasPrefix(got, l.want)
		})
		if !strings.HasPrefix(got, l.want) {
			t.Errorf("lines %q have %s %q, want %q", l.msg, l.field, got, l.want)
		}
	}
}

func TestAHeadersPromisesAreRead(t *testing.T) {
	header := "# Words.\n#\n#   go run ./examples/caddy run --config x\n#   curl a      # a b (as c)\n" +
		"#   curl \\\n#       b # 1 = 2, 3\n#   curl c # (soon)\n#   curl d  # \"x\":0 (soon)\n#   nc e # f"
	header = strings.ReplaceAll(header, "\\\n#     ", "")
	want := []promise{{"curl a", "a b", false}, {"curl   b", "1 = 2, 3", false}, {"curl c", "", true}, {"curl d", `"x":0`, true}}
	if diff := cmp.Diff(want, promisesOf(header), cmp.AllowUnexported(promise{})); diff != "" {
		t.Errorf("promises, -want +got:\n%s", diff)
	}
}

// A server that nobody has started when the example begins.
func TestTheDeadServerOfTheStaticExampleComesBack(t *testing.T) {
	t.Parallel()
	const path = "static/Caddyfile"
	config, ports := exchangePorts(untrusted(t, check(t, path)))
	c := testnet.StartCaddy(t, config, nil)
	for range 7 { // until it has been found out
		if got := testnet.Get(t, c.URL(ports["8080"])).Text(); got != "a" && got != "b" {
			t.Fatalf("answer %q, want a or b", got)
		}
	}
	listen := func() (net.Listener, error) { return net.Listen("tcp", c.Addr(ports["9009"])) }
	testnet.NewBackendOn(t, listen, func(testnet.Request) testnet.Answer { return testnet.Answer{Body: "c\n"} })
	testnet.Eventually(t, time.Minute, "the third server answers", func() bool {
		return testnet.Get(t, c.URL(ports["8080"])).Text() == "c"
	})
}

func TestTheJSONFormOfAnExampleSaysTheSame(t *testing.T) {
	pairs := 0
	for _, path := range find(t, ".") {
		file := filepath.Join(filepath.Dir(path), "caddy.json")
		if filepath.Base(path) != "Caddyfile" {
			continue
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs++
		var adapted, written any
		if err := json.Unmarshal(check(t, path), &adapted); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(adapted, written); diff != "" {
			t.Errorf("%s (-) and %s (+) differ:\n%s", path, file, diff)
		}
	}
	if pairs < 4 {
		t.Errorf("%d examples have both forms, want at least 4", pairs)
	}
}
