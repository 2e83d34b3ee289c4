// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// row is the row of a server in the page's table.
func row(server string) string {
	return fmt.Sprintf(`document.querySelector('#rows .row:not([hidden])[data-server="%s"]')`, server)
}

func stateIs(server, state string) string {
	return fmt.Sprintf("%s.querySelector('.stat').textContent.includes(%q)", row(server), state)
}

const statusSite = "\tupstream_status /status*%s\n\tproxy_pass app"

func TestThePageShowsAServerGoingDownAndComingBack(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	b := backends(t, 1)
	p := serve(t, group("app", m.addr+" fail_timeout=2s", b[0].Addr()), fmt.Sprintf(statusSite, ""))
	page := newBrowser(t)
	page.do(chromedp.Navigate(p.URL("front") + "/status"))
	page.until("both servers up", stateIs(m.addr, "up")+"&&"+stateIs(b[0].Addr(), "up"))
	page.until("the verdict", "document.getElementById('verdict').textContent.includes('all 2 servers of 1 groups are fine')")

	m.kill()
	p.bodies(2, "/")
	page.until("the server unhealthy", stateIs(m.addr, "unhealthy")+"&&"+row(m.addr)+".querySelector('.err').textContent.includes('refused')")
	page.until("the verdict", "document.getElementById('verdict').textContent.includes('1 of 2 servers cannot be used')")
	page.until("the change marked", row(m.addr)+".classList.contains('new')")

	m.start()
	testnet.Eventually(t, 20*time.Second, "the server healthy", func() bool {
		p.bodies(2, "/")
		return p.servers("app")[0].State.State == "up"
	})
	page.until("the server up again", stateIs(m.addr, "up"))
	page.until("both changes in the log", "document.getElementById('logcount').textContent.startsWith('(2')")
	if buttons := evaluate[int](page, "document.querySelectorAll('.acts:not([hidden]) button:not([hidden])').length"); buttons > 0 {
		t.Errorf("%d buttons without write", buttons)
	}
}

func TestAClickDrainsAServer(t *testing.T) {
	t.Parallel()
	b := backends(t, 2)
	p := serve(t, group("app", b[0].Addr(), b[1].Addr()), fmt.Sprintf(statusSite, " {\n\t\twrite\n\t}"))
	page := newBrowser(t)
	page.do(chromedp.Navigate(p.URL("front") + "/status"))
	page.until("the buttons", row(b[0].Addr())+".querySelector('.drain').textContent === 'Drain'")
	click := func(class string) {
		t.Helper()
		page.do(chromedp.Click(chromedp.CSS(fmt.Sprintf(`.row:not([hidden])[data-server="%s"] .%s`, b[0].Addr(), class))))
	}
	click("drain")
	page.until("the server draining", stateIs(b[0].Addr(), "draining"))
	if got := p.bodies(3, "/"); got != "b b b" {
		t.Errorf("answers %s, want b only", got)
	}
	page.until("the other button", row(b[0].Addr())+".querySelector('.drain').textContent === 'Enable'")
	page.do(chromedp.Click(chromedp.CSS("#toast button"))) // undo
	page.until("the server up", stateIs(b[0].Addr(), "up"))
	click("drain")
	page.until("the server draining", stateIs(b[0].Addr(), "draining"))
	page.until("the other button", row(b[0].Addr())+".querySelector('.drain').textContent === 'Enable'")
	click("drain")
	page.until("the server up", stateIs(b[0].Addr(), "up"))

	click("set")
	page.do(chromedp.WaitVisible(chromedp.CSS("#dialog")), chromedp.SetValue(chromedp.CSS("#weight"), "7"),
		chromedp.Click(chromedp.CSS("#dialog .primary")))
	page.until("the new weight", row(b[0].Addr())+".querySelector('[data-short=w]').textContent === '7'")
	if w := p.servers("app")[0].Weight; w != 7 {
		t.Errorf("weight %d, want 7", w)
	}
}

func TestThePageIsQuickWithThousandsOfServers(t *testing.T) {
	t.Parallel()
	const n = 3000
	var lines []string
	for i := range n {
		weight := ""
		if i == n-1 {
			weight = " down weight=77"
		}
		lines = append(lines, fmt.Sprintf("127.%d.%d.%d:9%s", 1+i>>16, i>>8&255, i&255, weight))
	}
	b := backends(t, 1)
	p := serve(t, group("large", lines...)+group("app", b[0].Addr()), fmt.Sprintf(statusSite, " {\n\t\twrite\n\t}"))
	page := newBrowser(t)
	page.do(chromedp.Navigate(p.URL("front") + "/status"))
	page.until("the servers", "document.getElementById('shown').textContent === '3001 servers'")
	if rows := evaluate[int](page, "document.querySelectorAll('#rows .row').length"); rows > 60 {
		t.Errorf("%d rows are in the document, want those in sight", rows)
	}
	// The measure is a table that has all rows in the document, as a plain one would.
	const measure = `(() => {
		const timed = f => { const t = performance.now(); f(); document.body.offsetHeight; return performance.now() - t; };
		const median = list => list.sort((a, b) => a - b)[list.length >> 1];
		const scroll = [], sort = [], filter = [], all = [], poll = [];
		for (let round = 0; round < 3; round++) {
			for (let y = 0; y < 130000; y += 9000) scroll.push(timed(() => { scrollTo(0, y); table.draw(); }));
			for (let i = 0; i < columns.length; i++) sort.push(timed(() => table.sortBy(i, i % 2 === 0)));
			for (const word of ['127.1.4', 'down', '']) filter.push(timed(() => { $('filter').value = word; servers(); }));
			poll.push(timed(show));
			const whole = new Table(model, act, () => {});
			const rows = table.list.map(row => [whole.make(), row]);
			all.push(timed(() => rows.forEach(([cells, row]) => { cells.root.style.position = 'static'; whole.fill(cells, row); })));
			rows.forEach(([cells]) => cells.root.remove());
			$('head').replaceChildren(...[...$('head').children].slice(0, columns.length));
			$('sort').length = columns.length;
		}
		$('filter').value = '127.1.11.183';
		servers();
		return { scroll: median(scroll), sort: median(sort), filter: median(filter), poll: median(poll), all: median(all) };
	})()`
	took := evaluate[struct{ Scroll, Sort, Filter, Poll, All float64 }](page, measure)
	t.Logf("ms, medians: %+v", took)
	for what, ms := range map[string]float64{"scrolling": took.Scroll, "sorting": took.Sort, "filtering": took.Filter, "a poll": took.Poll} {
		if ms > took.All/10 {
			t.Errorf("%s took %.1f ms where all rows in the document take %.1f, want less than a tenth", what, ms, took.All)
		}
	}
	page.until("the one server that is left", "document.getElementById('shown').textContent === '1 of 3001 servers' && "+
		strings.ReplaceAll(stateIs("127.1.11.183:9", "down"), "127.1.11.183:9", lines[n-1][:strings.Index(lines[n-1], " ")]))
}

func TestThePageFitsAPhoneInTheDark(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	b := backends(t, 2)
	p := serve(t, group("app", m.addr+" fail_timeout=60s", b[0].Addr()+" max_conns=50", b[1].Addr()+" drain")+
		group("a-group-with-a-rather-long-name.example", b[0].Addr()+" id=backend-with-a-long-name.internal.example:8080"), fmt.Sprintf(statusSite, " {\n\t\twrite\n\t}"))
	m.kill()
	page := newBrowser(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				if res, err := http.Get(p.URL("front") + "/"); err == nil {
					res.Body.Close()
				}
			}
		}
	}()
	page.do(chromedp.Navigate(p.URL("front") + "/status"))
	page.until("rates", "model.tick > 6 && "+stateIs(m.addr, "unhealthy"))
	page.picture("wide-light")
	page.dark()
	page.picture("wide-dark")
	page.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	page.until("another poll", "model.tick > 7")
	page.picture("phone-dark")
	close(stop)
	<-done
	overflow := evaluate[bool](page, "document.documentElement.scrollWidth > innerWidth")
	background := evaluate[string](page, "getComputedStyle(document.body).backgroundColor")
	if overflow || background != "rgb(16, 19, 23)" {
		t.Errorf("overflow %v, background %s; want a dark page that fits", overflow, background)
	}
}

func TestTheStatusInJSON(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr()), fmt.Sprintf(statusSite, ""))
	for _, c := range []struct{ path, accept, kind string }{
		{"/status.json", "text/html", "application/json"}, {"/status", "application/json", "application/json"},
		{"/status", "text/html,application/json", "text/html; charset=utf-8"}, {"/status", "*/*", "text/html; charset=utf-8"},
		{"/status?asset=app.js", "*/*", "text/javascript; charset=utf-8"},
	} {
		res := testnet.Get(t, p.URL("front")+c.path, "Accept: "+c.accept)
		if res.Status != 200 || res.Get("Content-Type") != c.kind || res.Get("Cache-Control") != "no-store" || res.Get("Set-Cookie") != "" {
			t.Errorf("%s with Accept %s: %d %s", c.path, c.accept, res.Status, res.Get("Content-Type"))
		}
		var s struct{ Groups []struct{ Name string } }
		if c.kind == "application/json" && (json.Unmarshal(res.Body, &s) != nil || len(s.Groups) != 1 || s.Groups[0].Name != "app") {
			t.Errorf("%s: %s", c.path, res.Text())
		}
	}
	if res := testnet.Get(t, p.URL("front")+"/status?asset=../handler.go"); res.Status != 404 {
		t.Errorf("an unknown asset: %d", res.Status)
	}
	for method, want := range map[string]int{"POST": 403, "DELETE": 405} {
		if res := testnet.Do(t, method, p.URL("front")+"/status", []string{"Content-Type: application/json"}, []byte(`{}`)); res.Status != want {
			t.Errorf("%s: %d, want %d", method, res.Status, want)
		}
	}
}

func TestAChangeNeedsTheTokenAndThePagesOwnOrigin(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	p := serve(t, group("app", b[0].Addr()), fmt.Sprintf(statusSite, " {\n\t\twrite\n\t}"))
	res := testnet.Get(t, p.URL("front")+"/status.json")
	var s struct{ Token string }
	if err := json.Unmarshal(res.Body, &s); err != nil || s.Token == "" {
		t.Fatal(res.Text())
	}
	if c := res.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") {
		t.Errorf("cookie %q", c)
	}
	cookie, token := "Cookie: upstream_status="+s.Token, "X-Upstream-Status-Token: "+s.Token
	body := fmt.Sprintf(`{"group":"app","server":%q,"fields":{"weight":3}}`, b[0].Addr())
	const kind = "Content-Type: application/json"
	for _, c := range []struct {
		what   string
		header []string
		body   string
		want   int
	}{
		{"no cookie", []string{kind, token}, body, 403},
		{"no token", []string{kind, cookie}, body, 403},
		{"another token", []string{kind, cookie, "X-Upstream-Status-Token: ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, body, 403},
		{"another origin", []string{kind, cookie, token, "Origin: http://evil.test"}, body, 403},
		{"another site", []string{kind, cookie, token, "Sec-Fetch-Site: cross-site"}, body, 403},
		{"a form", []string{"Content-Type: text/plain", cookie, token}, body, 415},
		{"no JSON", []string{kind, cookie, token}, "weight=3", 400},
		{"too large", []string{kind, cookie, token}, strings.Repeat(" ", 5<<10) + body, 413},
		{"another field", []string{kind, cookie, token}, strings.Replace(body, "weight", "max_conns", 1), 400},
		{"no such group", []string{kind, cookie, token}, strings.Replace(body, "app", "none", 1), 404},
		{"a bad weight", []string{kind, cookie, token}, strings.Replace(body, "3}", "-3}", 1), 400},
	} {
		if res := testnet.Do(t, "POST", p.URL("front")+"/status", c.header, []byte(c.body)); res.Status != c.want || !strings.Contains(res.Text(), `"error"`) {
			t.Errorf("%s: %d %s, want %d", c.what, res.Status, res.Text(), c.want)
		}
	}
	if w := p.servers("app")[0].Weight; w != 1 {
		t.Fatalf("weight %d after refused changes", w)
	}
	res = testnet.Do(t, "POST", p.URL("front")+"/status", []string{kind, cookie, token, "Sec-Fetch-Site: same-origin", "Origin: " + p.URL("front")}, []byte(body))
	if w := p.servers("app")[0].Weight; res.Status != 204 || w != 3 {
		t.Errorf("the page's own change: %d %s, weight %d", res.Status, res.Text(), w)
	}
	p.WaitLine(t, 10*time.Second, "a log line of the change", func(l testnet.Line) bool { return l.Msg() == "server changed on the status page" })
}
