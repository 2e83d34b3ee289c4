// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// logFormat is a log_format.
type logFormat struct {
	escape string
	text   string
}

func (a *adapter) logFormat(_ *scope, d *dir) error {
	if _, dup := a.formats[d.args[0]]; dup || d.args[0] == "combined" {
		return d.errorf("duplicate log_format %q", d.args[0])
	}
	f, err := readFormat(d)
	if err != nil {
		return err
	}
	a.uses(d, f.text)
	a.formats[d.args[0]] = f
	return nil
}

// readFormat reads the text of a log_format.
func readFormat(d *dir) (logFormat, error) {
	words := d.args[1:]
	f := logFormat{}
	if e, ok := strings.CutPrefix(words[0], "escape="); ok {
		if e != "default" && e != "json" && e != "none" {
			return f, d.errorf("invalid parameter %q", words[0])
		}
		f.escape, words = e, words[1:]
		if e == "default" {
			f.escape = ""
		}
	}
	f.text = strings.Join(words, "")
	return f, nil
}

// accessLog is an access_log; path is empty for off.
type accessLog struct {
	at     *dir
	path   string
	format string
	cond   string
	gzip   *nginxhttp.GzipLog // nil: not compressed
}

func readAccessLog(a *adapter, d *dir) (any, error) {
	return readAccessLogWith(a, d, func(text string) string {
		a.uses(d, text)
		return template(text, nil)
	})
}

// readAccessLogWith reads an access_log whose texts expand turns into ones with
// placeholders.
func readAccessLogWith(a *adapter, d *dir, expand func(string) string) (*accessLog, error) {
	if d.args[0] == "off" {
		return &accessLog{at: d}, nil
	}
	l := &accessLog{at: d, path: d.args[0], format: "combined"}
	var held []string
	if hasVariables(l.path) {
		return nil, d.errorf("a path with variables is not translated: write the path")
	}
	if strings.HasPrefix(l.path, "syslog:") {
		return nil, d.errorf("syslog is not translated: log to a file, or use a log writer of Caddy")
	}
	for i, p := range d.args[1:] {
		name, v, has := strings.Cut(p, "=")
		switch {
		case i == 0 && !has:
			l.format = p
		case name == "if":
			l.cond = expand(v)
		case name == "buffer" || name == "flush":
			held = append(held, p)
		case name == "gzip":
			l.gzip = &nginxhttp.GzipLog{Filename: a.path(l.path)}
			if !has {
				continue
			}
			if err := number(v, 1, func(n int) { l.gzip.Level = n }); err != nil || l.gzip.Level > 9 {
				return nil, d.errorf("invalid level of compression %q: expected 1 to 9", v)
			}
		default:
			return nil, d.errorf("invalid parameter %q", p)
		}
	}
	return l, l.hold(a, held)
}

// hold reads buffer and flush, which count for a compressed log.
func (l *accessLog) hold(a *adapter, params []string) error {
	for _, p := range params {
		name, v, _ := strings.Cut(p, "=")
		if l.gzip == nil {
			a.warn(l.at, "%s: lines are written at once", name)
			continue
		}
		size, err := parseSize(v)
		if name == "flush" {
			var t time.Duration
			t, err = parseTime(v)
			l.gzip.Flush = caddy.Duration(t)
		} else {
			l.gzip.Buffer = int(min(size, 1<<30))
		}
		if err != nil {
			return l.at.errorf("%s: %v", name, err)
		}
	}
	return nil
}

// accessLogs makes the logs that are given in a scope.
func (a *adapter) accessLogs(s *scope) (out []*nginxhttp.AccessLog, off bool, err error) {
	for _, l := range list[*accessLog](s, "access_log") {
		if l.path == "" {
			return nil, s.kind != inServer, nil
		}
		name, err := a.logger(l)
		if err != nil {
			return nil, false, err
		}
		out = append(out, &nginxhttp.AccessLog{Logger: name, If: l.cond})
	}
	return out, false, nil
}

// logger makes the log of an access_log.
func (a *adapter) logger(l *accessLog) (string, error) {
	f, ok := a.formats[l.format]
	if !ok && l.format != "combined" {
		return "", l.at.errorf("unknown log format %q", l.format)
	}
	return a.logFor(l, f, "http.log.access."), nil
}

// logFor makes the log for a file and a format, once; include is what stands
// before its name in that of the logger.
func (a *adapter) logFor(l *accessLog, f logFormat, include string) string {
	key := include + l.path + "\x00" + l.format
	if l.gzip != nil {
		key += "\x00" + l.gzip.WriterKey()
	}
	if name := a.loggers[key]; name != "" {
		return name
	}
	name := strings.Trim(notInIDs.ReplaceAllString(strings.TrimSuffix(filepath.Base(l.path), ".log"), "-"), "-.")
	if name == "" {
		name = "access"
	}
	if l.format != "combined" {
		name += "-" + strings.Trim(notInIDs.ReplaceAllString(l.format, "-"), "-.")
	}
	name = strings.ReplaceAll(name, ".", "-")
	for a.logs[name] != nil || name == "default" {
		name += "-"
	}
	a.loggers[key] = name
	a.newLog(name, include, l, f)
	return name
}

func writer(a *adapter, l *accessLog) []byte {
	if l.gzip != nil {
		return caddyconfig.JSONModuleObject(l.gzip, "output", "nginx_gzip", nil)
	}
	switch l.path {
	case "/dev/stdout":
		return caddyconfig.JSONModuleObject(struct{}{}, "output", "stdout", nil)
	case "/dev/stderr":
		return caddyconfig.JSONModuleObject(struct{}{}, "output", "stderr", nil)
	case "/dev/null":
		return caddyconfig.JSONModuleObject(struct{}{}, "output", "discard", nil)
	}
	return caddyconfig.JSONModuleObject(map[string]any{"filename": a.path(l.path), "roll": false, "mode": "0644"}, "output", "file", nil)
}
