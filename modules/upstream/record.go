// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Record holds the tries of all walks of one HTTP request, for placeholders and
// the access log. Values are formatted as nginx prints them, when asked for:
// the tries of a walk divided by ", ", walks by " : ".
type Record struct {
	current *Walk  // the latest of those that can go on
	walks   int32  // so far
	names   string // of their groups
	tries   []*Try
	first   [1]*Try
}

// recordOf returns the request's record, nil before the first walk.
func recordOf(ctx context.Context) *Record {
	r, _ := caddyhttp.GetVar(ctx, recordKey).(*Record)
	return r
}

func (r *Record) add(w *Walk, group string) {
	if r.walks++; r.walks > 1 {
		group = r.names + " : " + group
	}
	r.names = group
	w.nth = r.walks
	w.earlier, r.current = r.current, w
}

func (r *Record) addTry(t *Try) {
	if r.tries == nil {
		r.tries = r.first[:0]
	}
	r.tries = append(r.tries, t)
}

// publish makes the record visible to placeholders and, if the server logs
// requests, to the access log.
func (r *Record) publish(ctx context.Context) {
	if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(r.placeholder)
	}
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || server.Logs == nil {
		return
	}
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Add(zap.Inline(r))
	}
}

// values are the fields of the record: the placeholder is {http.upstream.<name>},
// the field in the access log upstream_<name>.
var values = []struct {
	name   string
	format func(*Try) string
}{
	{"addr", func(t *Try) string { return t.addr }},
	{"status", func(t *Try) string { return number(int64(t.status.Load())) }},
	{"connect_time", func(t *Try) string { return seconds(t.Attempt.ConnectTime()) }},
	{"header_time", func(t *Try) string { return seconds(t.Attempt.HeaderTime()) }},
	{"response_time", func(t *Try) string { return t.responseTime() }},
	{"response_length", func(t *Try) string { return strconv.FormatInt(t.Attempt.Body(), 10) }},
	{"bytes_sent", func(t *Try) string { return strconv.FormatInt(t.Attempt.Sent(), 10) }},
	{"bytes_received", func(t *Try) string { return strconv.FormatInt(t.Attempt.Received(), 10) }},
}

// responseTime is 0.000 for a try without a server, as nginx has it, and the
// time so far for one that has not ended.
func (t *Try) responseTime() string {
	if d := t.Attempt.ResponseTime(); d > 0 {
		return seconds(d)
	}
	if t.Lease == nil {
		return "0.000"
	}
	return seconds(time.Since(t.Attempt.Start))
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func seconds(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return strconv.FormatFloat(d.Truncate(time.Millisecond).Seconds(), 'f', 3, 64)
}

const placeholderPrefix = "http.upstream."

// placeholder implements caddy.ReplacerFunc.
func (r *Record) placeholder(key string) (any, bool) {
	name, ok := strings.CutPrefix(key, placeholderPrefix)
	if !ok {
		return nil, false
	}
	if name == "name" {
		return r.names, true
	}
	for i := range values {
		if values[i].name == name {
			return r.list(values[i].format), true
		}
	}
	return r.responseValue(name)
}

func (r *Record) list(format func(*Try) string) string {
	var b strings.Builder
	for i, t := range r.tries {
		switch {
		case i == 0:
		case t.nth != r.tries[i-1].nth:
			b.WriteString(" : ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(format(t))
	}
	return b.String()
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (r *Record) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for i := range values {
		enc.AddString("upstream_"+values[i].name, r.list(values[i].format))
	}
	enc.AddString("upstream_name", r.names)
	return nil
}
