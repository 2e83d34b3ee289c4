// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"testing"
	"time"
)

func TestOutputIsCutIntoLines(t *testing.T) {
	o := newOutput()
	w := o.writer()
	for _, part := range []string{"pla", "in\n{\"msg\":\"m\",\"n\":5,\"s\":[\"a\"]}\nre", "st"} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	o.end()
	lines := o.Lines()
	if len(lines) != 3 || lines[0].Msg() != "plain" || lines[1].Msg() != "m" || lines[2].Text != "rest" {
		t.Fatalf("lines = %+v", lines)
	}
	if !lines[1].Has(map[string]any{"n": 5, "s": []string{"a"}}) {
		t.Error("Has does not find 5 and a list")
	}
	if lines[1].Has(map[string]any{"n": 6}) || lines[1].Has(map[string]any{"x": nil}) {
		t.Error("Has finds what is not there")
	}
}

func TestWaitingForALineEndsWithTheProcess(t *testing.T) {
	o := newOutput()
	o.end()
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.WaitLine(v, time.Minute, "anything", func(Line) bool { return true })
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("still waiting")
	}
	if v.how != "fatal" {
		t.Errorf("the test ended with %q, want fatal", v.how)
	}
}
