// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// Line is one line of a child's output.
type Line struct {
	Text string
	// Fields is the decoded line if it is a JSON object, as Caddy's logs are.
	Fields map[string]any
}

// Msg is the line's message, without JSON the whole text.
func (l Line) Msg() string {
	if l.Fields == nil {
		return l.Text
	}
	s, _ := l.Fields["msg"].(string)
	return s
}

// Has reports whether the line has all of fields. A value is compared as JSON
// would write it, so 5, 5.0 and int64(5) are the same.
func (l Line) Has(fields map[string]any) bool {
	for k, want := range fields {
		got, ok := l.Fields[k]
		if !ok || !reflect.DeepEqual(got, throughJSON(want)) {
			return false
		}
	}
	return true
}

func throughJSON(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	if json.Unmarshal(b, &out) != nil {
		return v
	}
	return out
}

// Output collects what a child writes, line by line.
type Output struct {
	mu      sync.Mutex // guards what follows
	lines   []Line
	changed chan struct{} // closed and replaced with each line
	ended   bool
	writers []*lineWriter
}

func newOutput() *Output { return &Output{changed: make(chan struct{})} }

func (o *Output) writer() *lineWriter {
	w := &lineWriter{o: o}
	o.writers = append(o.writers, w)
	return w
}

// end flushes what had no line end.
func (o *Output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.writers {
		if w.rest.Len() > 0 {
			o.addLocked(w.rest.String())
			w.rest.Reset()
		}
	}
	o.ended = true
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *Output) addLocked(text string) {
	l := Line{Text: text}
	if strings.HasPrefix(text, "{") {
		var f map[string]any
		if json.Unmarshal([]byte(text), &f) == nil {
			l.Fields = f
		}
	}
	o.lines = append(o.lines, l)
}

// Lines are all lines so far.
func (o *Output) Lines() []Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Line(nil), o.lines...)
}

// Logs are the lines so far with this message.
func (o *Output) Logs(msg string) []Line {
	var out []Line
	for _, l := range o.Lines() {
		if l.Fields != nil && l.Msg() == msg {
			out = append(out, l)
		}
	}
	return out
}

// Text is everything so far.
func (o *Output) Text() string {
	var b strings.Builder
	for _, l := range o.Lines() {
		b.WriteString(l.Text)
		b.WriteByte('\n')
	}
	return b.String()
}

// WaitLine waits at most d for a line that satisfies f, past ones included,
// and fails the test if none comes; what says what was waited for.
func (o *Output) WaitLine(t testing.TB, d time.Duration, what string, f func(Line) bool) Line {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for seen := 0; ; {
		o.mu.Lock()
		fresh, changed, ended := o.lines[seen:], o.changed, o.ended
		o.mu.Unlock()
		for _, l := range fresh {
			if f(l) {
				return l
			}
		}
		seen += len(fresh)
		if ended {
			t.Fatalf("the process ended without %s", what)
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("no %s within %v", what, d)
		}
	}
}

// WaitLog waits at most 10 s for a log line with this message and all of fields.
func (o *Output) WaitLog(t testing.TB, msg string, fields map[string]any) Line {
	t.Helper()
	return o.WaitLine(t, 10*time.Second, fmt.Sprintf("log line %q with %v", msg, fields), func(l Line) bool {
		return l.Fields != nil && l.Msg() == msg && l.Has(fields)
	})
}

// lineWriter is one of the child's streams.
type lineWriter struct {
	o    *Output
	rest bytes.Buffer // an unfinished line, guarded by o.mu
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	n := len(p)
	added := false
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		w.rest.Write(p[:i])
		w.o.addLocked(w.rest.String())
		w.rest.Reset()
		p, added = p[i+1:], true
	}
	w.rest.Write(p)
	if added {
		close(w.o.changed)
		w.o.changed = make(chan struct{})
	}
	return n, nil
}
