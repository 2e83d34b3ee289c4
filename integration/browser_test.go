// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// browser is a Chromium of the test's own. What it complains about, on its
// console or elsewhere, fails the test.
type browser struct {
	context.Context
	t *testing.T

	mu         sync.Mutex // guards complaints
	complaints []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testnet.Need(t, "chromium")), chromedp.NoSandbox, chromedp.WindowSize(1400, 900))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	b := &browser{t: t}
	b.Context, cancel = chromedp.NewContext(allocator, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.complaints) > 0 {
			t.Errorf("the browser complains: %q", b.complaints)
		}
	})
	return b
}

func (b *browser) listen(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprint("console ", e.Type)
	case *log.EventEntryAdded:
		text = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, text)
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// evaluate returns what an expression is in the page.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until the expression is true in the page. One that throws is not.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	testnet.Eventually(b.t, 30*time.Second, what, func() bool {
		return evaluate[bool](b, "(() => { try { return !!("+expression+"); } catch { return false; } })()")
	})
}

// dark says that the person likes it dark.
func (b *browser) dark() {
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return err
	}))
}

// picture saves what the browser shows, if CADDY_UPSTREAM_PICTURES says where.
func (b *browser) picture(name string) {
	dir := os.Getenv("CADDY_UPSTREAM_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(dir+"/"+name+".png", png, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
