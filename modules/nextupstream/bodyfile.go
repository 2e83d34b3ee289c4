// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BodyFiles gives temporary files of request bodies a name, for a server, a log
// or somebody who debugs. Such a file has the whole body, and is readable by
// Caddy's user only.
type BodyFiles struct {
	// The directory of the files. It is made when the first file is. A file is
	// named by a number of ten digits or more.
	Dir string `json:"dir"`

	// Directories below it, which take so many of the last digits of the number
	// each: with 1 and 2, the file 0000012345 is in 5/34. At most three, of 1 to 3
	// digits. Default: none.
	Levels []int `json:"levels,omitempty"`

	// Put every buffered body into a file, not only one that is larger than
	// request_buffer_size. There is no limit to its size then but that of
	// the request's body.
	Always bool `json:"always,omitempty"`

	// Leave the files when the request has ended: somebody else has to remove
	// them.
	Keep bool `json:"keep,omitempty"`
}

// BodyFileVar is the variable of Caddy that has the name of the file with a
// request's body: {http.vars.upstream_request_body_file}.
const BodyFileVar = "upstream_request_body_file"

func (b *BodyFiles) check() error {
	if b.Dir == "" {
		return errors.New("request_body_files: no directory")
	}
	if len(b.Levels) > 3 {
		return fmt.Errorf("request_body_files: %d levels: expected at most 3", len(b.Levels))
	}
	for _, n := range b.Levels {
		if n < 1 || n > 3 {
			return fmt.Errorf("request_body_files: a level of %d digits: expected 1 to 3", n)
		}
	}
	return nil
}

// limits are those of request buffering with such files.
func (b *BodyFiles) limits(s *bufferSettings) {
	if s.named = b; b.Always {
		s.file, s.total = math.MaxInt64, math.MaxInt64
	}
}

// wantsEmpty reports whether a request that says that its body is empty is to have
// a file.
func (s *bufferSettings) wantsEmpty(r *http.Request) bool {
	return s.named != nil && s.named.Always && len(r.Header["Content-Length"]) > 0
}

// lastFile is the number of the last file that was made.
var lastFile atomic.Uint64

// create makes a new file.
func (b *BodyFiles) create() (*os.File, error) {
	for range 1000 {
		number := lastFile.Add(1)
		name := fmt.Sprintf("%010d", number)
		dir, digits := b.Dir, name
		for _, n := range b.Levels {
			dir = filepath.Join(dir, digits[len(digits)-n:])
			digits = digits[:len(digits)-n]
		}
		name = filepath.Join(dir, name)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(dir, 0o700); err == nil {
				f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			}
		}
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		lastFile.Add(rand.Uint64N(10_000_000)) // those of an earlier process, or of another
	}
	return nil, fmt.Errorf("no name for a new file in %s: too many are taken", b.Dir)
}

// tell tells a request where its body is.
func (s *spool) tell(ctx context.Context) {
	if s.named != nil && s.file != nil {
		caddyhttp.SetVar(ctx, BodyFileVar, s.file.Name())
	}
}
