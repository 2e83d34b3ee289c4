// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/nginxvars/nginxmap"
)

func init() { caddy.RegisterModule(Encoder{}) }

// Combined is nginx's own log_format.
const Combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`

// Encoder writes access log entries as lines in an nginx log_format. Of a
// request that nginx_server handled it knows every variable; of others
// $remote_addr, $remote_user, $time_local, $time_iso8601, $msec, $request,
// $request_method, $request_uri, $status, $body_bytes_sent, $request_time,
// $host and $http_*. Of other entries, as those of stream's access log, each
// field with a text is a variable.
type Encoder struct {
	// The format, with nginx's variables. Default: combined.
	Format string `json:"log_format,omitempty"`

	// How values are escaped: `default`, `json` or `none`.
	Escape string `json:"escape,omitempty"`

	template *nginxmap.Template
	fields   map[string]zapcore.Field // of loggers made by With
}

// CaddyModule returns the Caddy module information.
func (Encoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.nginx", New: func() caddy.Module { return new(Encoder) }}
}

// UnmarshalCaddyfile reads:
//
//	format nginx [<log_format>] {
//	    escape default|json|none
//	}
func (e *Encoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		e.Format = d.Val()
	}
	if d.NextArg() {
		return d.Errf("format nginx: unexpected %q: expected one format, in quotes", d.Val())
	}
	return cfg.Options{"escape": cfg.Word(&e.Escape, "default", "json", "none")}.Block(d, "format nginx", nil)
}

// Provision reads the format.
func (e *Encoder) Provision(caddy.Context) error {
	switch e.Escape {
	case "", "default", "json", "none":
	default:
		return fmt.Errorf("escape %q: expected default, json or none", e.Escape)
	}
	format := e.Format
	if format == "" {
		format = Combined
	}
	e.template = nginxmap.ParseTemplate(format)
	return nil
}

// logField carries the state of a request to the encoder. Other encoders skip
// a field of this type.
const logField = "nginx"

// finish tells the access log what to write and where.
func (st *state) finish() {
	st.leave()
	ctx := st.r.Context()
	var loggers []any
	if st.location != nil {
		for _, a := range st.location.AccessLogs {
			if v := st.expand(a.If); a.If == "" || v != "" && v != "0" {
				loggers = append(loggers, a.Logger)
			}
		}
	}
	if loggers == nil {
		caddyhttp.SetVar(ctx, caddyhttp.LogSkipVar, true)
		return
	}
	caddyhttp.SetVar(ctx, caddyhttp.AccessLoggerNameVarKey, loggers)
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zapcore.Field{Key: logField, Type: zapcore.SkipType, Interface: st})
	}
}

// Clone implements zapcore.Encoder.
func (e *Encoder) Clone() zapcore.Encoder {
	c := *e
	c.fields = make(map[string]zapcore.Field, len(e.fields))
	for k, f := range e.fields {
		c.fields[k] = f
	}
	return &c
}

var lines = buffer.NewPool()

// EncodeEntry implements zapcore.Encoder.
func (e *Encoder) EncodeEntry(ent zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	get := e.plain(ent, fields)
	for _, f := range fields {
		if st, ok := f.Interface.(*state); ok && f.Key == logField {
			get = st.variable
		}
	}
	line := lines.Get()
	line.AppendString(e.template.Expand(func(name string) string {
		v, ok := get(name)
		return escapeLog(v, ok, e.Escape)
	}))
	line.AppendByte('\n')
	return line, nil
}

// plain knows the variables of a request from the entry's own fields.
func (e *Encoder) plain(ent zapcore.Entry, fields []zapcore.Field) func(string) (string, bool) {
	by := map[string]zapcore.Field{}
	for k, f := range e.fields {
		by[k] = f
	}
	for _, f := range fields {
		by[f.Key] = f
	}
	req, _ := by["request"].Interface.(caddyhttp.LoggableHTTPRequest)
	return func(name string) (string, bool) { return plainValue(name, ent, by, req.Request) }
}

func plainValue(name string, ent zapcore.Entry, by map[string]zapcore.Field, r *http.Request) (string, bool) {
	if f := by[name]; f.Type == zapcore.StringType { // as of stream's access log
		return f.String, f.String != ""
	}
	switch name {
	case "time_local":
		return ent.Time.Format("02/Jan/2006:15:04:05 -0700"), true
	case "time_iso8601":
		return ent.Time.Format("2006-01-02T15:04:05-07:00"), true
	case "msec":
		return msec(ent.Time), true
	case "status":
		return strconv.FormatInt(by["status"].Integer, 10), true
	case "body_bytes_sent":
		return strconv.FormatInt(by["size"].Integer, 10), true
	case "request_time":
		return secondsText(time.Duration(by["duration"].Integer)), true
	case "remote_user":
		u := by["user_id"].String
		return u, u != ""
	}
	if r == nil {
		return "", false
	}
	switch name {
	case "remote_addr":
		return hostOnly(r.RemoteAddr), true
	case "request":
		return r.Method + " " + r.RequestURI + " " + protocol(r), true
	case "request_method":
		return r.Method, true
	case "request_uri":
		return r.RequestURI, true
	case "host":
		return strings.ToLower(hostOnly(r.Host)), true
	}
	if header, ok := strings.CutPrefix(name, "http_"); ok {
		return field(r.Header, header)
	}
	return "", false
}

// escapeLog writes a value as log_format does.
func escapeLog(v string, ok bool, how string) string {
	switch {
	case how == "none":
		return v
	case how == "json":
		return escapeJSON(v)
	case !ok:
		return "-"
	}
	clean := true
	for i := range len(v) {
		if c := v[i]; c < 32 || c > 126 || c == '"' || c == '\\' {
			clean = false
			break
		}
	}
	if clean {
		return v
	}
	var b strings.Builder
	for i := range len(v) {
		if c := v[i]; c < 32 || c > 126 || c == '"' || c == '\\' {
			b.WriteString(`\x`)
			b.WriteByte(upperhex[c>>4])
			b.WriteByte(upperhex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeJSON escapes what a string of JSON may not hold, and nothing else.
func escapeJSON(v string) string {
	var b strings.Builder
	for i := range len(v) {
		c := v[i]
		switch short := strings.IndexByte("\b\t\n\f\r", c); {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte("btnfr"[short])
		case c < ' ':
			b.WriteString(`\u00`)
			b.WriteByte(upperhex[c>>4])
			b.WriteByte(upperhex[c&15])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// add keeps a field of a logger made by With.
func (e *Encoder) add(f zapcore.Field) {
	if e.fields == nil {
		e.fields = map[string]zapcore.Field{}
	}
	e.fields[f.Key] = f
}

// AddObject implements zapcore.ObjectEncoder.
func (e *Encoder) AddObject(key string, v zapcore.ObjectMarshaler) error {
	e.add(zap.Object(key, v))
	return nil
}
