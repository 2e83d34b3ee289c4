// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// fieldsOf are the names in JSON of a struct's fields.
func fieldsOf[T any]() []string {
	var out []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

func TestThePageShowsAllThatIsKnownOfAServer(t *testing.T) {
	t.Parallel()
	good := testnet.NewBackend(t, testnet.Answer{Body: strings.Repeat("x", 5000)})
	echo := echoing(t)
	dead := testnet.RefusedAddr(t)
	p := serve(t, group("app", dead+" id=dead max_fails=3 fail_timeout=60s", good.Addr()+" id=good max_conns=9 drain_timeout=30s", "keepalive 4", "queue 7")+
		group("db", echo+" id=db")+
		"\tstream {\n\t\tserver 127.0.0.1:{{port \"stream\"}} {\n\t\t\tproxy_pass db\n\t\t}\n\t}\n", fmt.Sprintf(statusSite, ""))
	work := func() {
		p.bodies(6, "/")
		s := p.tcp("stream")
		s.ask("hello")
		s.Close()
	}
	work()
	page := newBrowser(t)
	page.do(chromedp.Navigate(p.URL("front") + "/status"))
	page.until("the servers", stateIs("good", "up")+"&&"+stateIs("db", "up"))
	fact := func(field string) string {
		return evaluate[string](page, fmt.Sprintf(`(document.querySelector('#details [data-field="%s"]') || {textContent: 'MISSING'}).textContent`, field))
	}
	open := func(server string) {
		page.do(chromedp.Click(chromedp.CSS(fmt.Sprintf(`.row:not([hidden])[data-server="%s"] .name`, server))))
		page.until("the details of "+server, "details.root.open && document.getElementById('detailstitle').textContent.endsWith('/ "+server+"')")
	}
	open("good")
	not := map[string]bool{"id": true, "peers": true, "state": true}
	for _, field := range append(fieldsOf[upstream.ServerState](), fieldsOf[upstream.LiveState]()...) {
		if !not[field] && fact(field) == "MISSING" {
			t.Errorf("the page does not show %q", field)
		}
	}
	for field, want := range map[string]string{
		"state": "● up", "conns": "0", "picks": "6", "failures": "0", "responses": "2xx 6", "max_conns": "9", "queue": "0 of 7",
		"drain_timeout": "30s", "address": good.Addr(), "weight": "1", "effective_weight": "1", "last_error": "–", "fails": "0 of 1",
	} {
		if got := fact(field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	for field, want := range map[string]string{
		"keepalive": "created", "response_time": "of 6 in the last minute", "header_time": "99 %", "bytes_received": "kB (3", "bytes_sent": " B", "selected": "ago",
	} {
		if got := fact(field); !strings.Contains(got, want) && got != "now" {
			t.Errorf("%s: %q, want something with %q", field, got, want)
		}
	}
	p.bodies(6, "/")
	page.until("the next answers", `document.querySelector('#details [data-field="responses"]').textContent === '2xx 12'`)
	page.picture("details-light")
	page.dark()
	page.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	page.picture("details-phone-dark")
	if evaluate[bool](page, "details.root.scrollWidth > details.root.clientWidth || details.root.getBoundingClientRect().width > innerWidth") {
		t.Error("the details do not fit a phone")
	}
	page.do(chromedp.EmulateViewport(1400, 900), chromedp.Click(chromedp.CSS("#details header button")))
	open("dead")
	for field, want := range map[string]string{"last_error": "refused", "failures_by_reason": "error 3", "unhealthy_for": "s", "down_since": "ago", "state": "unhealthy", "fails": "of 3"} {
		if got := fact(field); !strings.Contains(got, want) {
			t.Errorf("the dead server: %s: %q, want something with %q", field, got, want)
		}
	}
	page.do(chromedp.Click(chromedp.CSS("#details header button")))
	open("db")
	if got := fact("sessions"); got != "1" {
		t.Errorf("stream: %s sessions, want 1", got)
	}
	page.do(chromedp.Click(chromedp.CSS("#details header button")))

	// Both kinds of groups and servers have charts and rates.
	work()
	card := func(name string) string {
		return fmt.Sprintf("[...document.querySelectorAll('.group')].find(c => c.querySelector('.name').firstChild.textContent === %q)", name)
	}
	for _, name := range []string{"app", "db"} {
		what := map[string]string{"app": "req/s", "db": "sessions/s"}[name]
		page.until("the card of "+name, card(name)+".textContent.includes('"+what+"') && "+card(name)+".querySelector('.req').getAttribute('d').includes('L')")
	}
	for _, server := range []string{"good", "db"} {
		page.until("the chart of "+server, row(server)+".querySelector('.req').getAttribute('d').includes('L')")
	}
}
