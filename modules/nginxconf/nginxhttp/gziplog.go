// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
)

func init() { caddy.RegisterModule(new(GzipLog)) }

// GzipLog writes a log to a file, compressed as nginx's `access_log ... gzip`
// does: lines are collected, and each collection is compressed by itself. What
// has been collected is written on a reload, and when Caddy exits.
type GzipLog struct {
	// The file; lines are appended to it.
	Filename string `json:"filename"`

	// The level of compression, 1 to 9. Default: 1.
	Level int `json:"level,omitempty"`

	// How many bytes of lines are collected. Default: 64 KiB.
	Buffer int `json:"buffer,omitempty"`

	// How long a line may wait. Default: until enough is collected.
	Flush caddy.Duration `json:"flush,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*GzipLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.nginx_gzip", New: func() caddy.Module { return new(GzipLog) }}
}

// Provision fills in defaults.
func (l *GzipLog) Provision(caddy.Context) error {
	if l.Level == 0 {
		l.Level = gzip.BestSpeed
	}
	if l.Buffer == 0 {
		l.Buffer = 64 << 10
	}
	switch {
	case l.Filename == "":
		return errors.New("nginx_gzip: no filename")
	case l.Level < 1 || l.Level > 9:
		return fmt.Errorf("nginx_gzip: level %d: expected 1 to 9", l.Level)
	case l.Buffer < 0 || l.Flush < 0:
		return errors.New("nginx_gzip: buffer and flush must not be negative")
	}
	return nil
}

// UnmarshalCaddyfile reads:
//
//	output nginx_gzip <file> {
//	    level <1-9>
//	    buffer <size>
//	    flush <duration>
//	}
func (l *GzipLog) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&l.Filename) || d.NextArg() {
		return d.Err("nginx_gzip: expected a file")
	}
	buffer := int64(0)
	err := cfg.Options{
		"level": cfg.Int(&l.Level, 1), "buffer": cfg.Size(&buffer, 1), "flush": cfg.Duration(&l.Flush),
	}.Block(d, "nginx_gzip", nil)
	l.Buffer = int(min(buffer, 1<<30))
	return err
}

func (l *GzipLog) String() string { return l.Filename }

// WriterKey implements caddy.WriterOpener.
func (l *GzipLog) WriterKey() string {
	return fmt.Sprintf("nginx_gzip:%s:%d:%d:%d", l.Filename, l.Level, l.Buffer, l.Flush)
}

// OpenWriter implements caddy.WriterOpener.
func (l *GzipLog) OpenWriter() (io.WriteCloser, error) {
	f, err := os.OpenFile(l.Filename, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	w := &gzipWriter{key: l.WriterKey(), file: f, level: l.Level, size: l.Buffer, flush: time.Duration(l.Flush)}
	gzipLogs.mu.Lock()
	defer gzipLogs.mu.Unlock()
	if gzipLogs.open == nil {
		gzipLogs.open = map[*gzipWriter]struct{}{}
		caddy.OnExit(func(context.Context) { writeGzipLogs("") })
	}
	gzipLogs.open[w] = struct{}{}
	return w, nil
}

// Cleanup writes what is collected. Caddy itself closes logs neither on a reload
// nor at its exit.
func (l *GzipLog) Cleanup() error {
	writeGzipLogs(l.WriterKey())
	return nil
}

// gzipLogs are the open logs of the process.
var gzipLogs struct {
	mu   sync.Mutex // guards open
	open map[*gzipWriter]struct{}
}

// writeGzipLogs writes what the logs of a key, or all, have collected.
func writeGzipLogs(key string) {
	gzipLogs.mu.Lock()
	open := slices.Collect(maps.Keys(gzipLogs.open))
	gzipLogs.mu.Unlock()
	for _, w := range open {
		if key == "" || w.key == key {
			w.mu.Lock()
			w.writeLocked()
			w.mu.Unlock()
		}
	}
}

// gzipWriter is an open log.
type gzipWriter struct {
	key         string
	level, size int
	flush       time.Duration

	mu    sync.Mutex // guards what follows
	file  *os.File   // nil when closed
	lines []byte
	timer *time.Timer // runs while there are lines, if there is a limit
	err   error       // of what was written behind Write's back
}

func (w *gzipWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return 0, os.ErrClosed
	}
	if len(w.lines)+len(line) > w.size {
		w.writeLocked()
	}
	if w.lines = append(w.lines, line...); len(w.lines) >= w.size {
		w.writeLocked()
	} else if w.flush > 0 && w.timer == nil {
		w.timer = time.AfterFunc(w.flush, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.writeLocked()
		})
	}
	err := w.err
	w.err = nil
	if err != nil {
		return 0, err
	}
	return len(line), nil
}

// writeLocked writes what is collected in one piece, so that readers never see
// half of it.
func (w *gzipWriter) writeLocked() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if len(w.lines) == 0 || w.file == nil {
		return
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, w.level)
	if err == nil {
		_, _ = z.Write(w.lines) // to memory
		_ = z.Close()
		_, err = w.file.Write(b.Bytes())
	}
	w.lines, w.err = w.lines[:0], errors.Join(w.err, err)
}

// Close writes what is left.
func (w *gzipWriter) Close() error {
	gzipLogs.mu.Lock()
	delete(gzipLogs.open, w)
	gzipLogs.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return os.ErrClosed
	}
	w.writeLocked()
	err := errors.Join(w.err, w.file.Close())
	w.file = nil
	return err
}

// Interface guards
var (
	_ caddy.Provisioner     = (*GzipLog)(nil)
	_ caddy.WriterOpener    = (*GzipLog)(nil)
	_ caddy.CleanerUpper    = (*GzipLog)(nil)
	_ caddyfile.Unmarshaler = (*GzipLog)(nil)
)
