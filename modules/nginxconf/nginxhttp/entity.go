// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// entity is what conditions and ranges of a request are about.
type entity struct {
	modified time.Time // zero: not known
	etag     string    // with its quotes, empty without one
	size     int64
}

// whole reports whether a response is the page of an error, which conditions and
// ranges are not about. One that an error page makes a 200 is none.
func (st *state) whole() bool {
	if st.errStatus == http.StatusOK {
		st.errStatus, st.okForError = 0, true
	}
	return st.errStatus > 0
}

// condition answers a request whose conditions say that e is not to be sent.
// They are nginx's: If-Modified-Since has to name the very time, and with
// If-None-Match both have to hold.
func (st *state) condition(e entity) (answered bool, err error) {
	h := st.r.Header
	if v := h.Get("If-Unmodified-Since"); v != "" {
		if t, err := http.ParseTime(v); e.modified.IsZero() || err != nil || t.Before(e.modified) {
			return true, st.failedCondition(v)
		}
	}
	if v := h.Get("If-Match"); v != "" && !e.matches(v, false) {
		return true, st.failedCondition(v)
	}
	since, none := h.Get("If-Modified-Since"), h.Get("If-None-Match")
	switch t, err := http.ParseTime(since); {
	case since == "" && none == "",
		since != "" && (err != nil || e.modified.IsZero() || !t.Equal(e.modified)),
		none != "" && !e.matches(none, true):
		return false, nil
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Accept-Ranges"} {
		st.w.Header().Del(name)
	}
	st.w.WriteHeader(http.StatusNotModified)
	return true, done{}
}

// failedCondition is the error of a condition that does not hold.
func (st *state) failedCondition(v string) error {
	st.startOver()
	return statusErr(http.StatusPreconditionFailed, "the condition %s does not hold", v)
}

// matches reports whether the entity is in a list of tags; weak ones count only
// if weak.
func (e entity) matches(list string, weak bool) bool {
	if list == "*" {
		return true
	}
	own := e.etag
	if weak {
		own = strings.TrimPrefix(own, "W/")
	}
	if own == "" {
		return false
	}
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.Trim(tag, " \t")
		if weak {
			tag = strings.TrimPrefix(tag, "W/")
		}
		if tag == own {
			return true
		}
	}
	return false
}

// span is a range of bytes.
type span struct{ start, end int64 } // without the byte at end

var errRange = errors.New("a range cannot be satisfied")

// ranges are the parts of e that the request asks for, none for all of it.
func (e entity) ranges(h http.Header) ([]span, error) {
	v := h.Get("Range")
	if len(v) < len("bytes=0") || !strings.EqualFold(v[:len("bytes=")], "bytes=") {
		return nil, nil
	}
	if only := h.Get("If-Range"); only != "" {
		t, err := http.ParseTime(only)
		if strings.HasSuffix(only, `"`) && only != e.etag || !strings.HasSuffix(only, `"`) && (err != nil || !t.Equal(e.modified)) {
			return nil, nil
		}
	}
	var out []span
	var total int64
	for part := range strings.SplitSeq(v[len("bytes="):], ",") {
		s, err := e.span(strings.Trim(part, " "))
		switch {
		case err != nil:
			return nil, err
		case s.start < s.end:
			out = append(out, s)
			total += s.end - s.start
		case s.start == 0:
			return nil, nil
		}
		if total > e.size { // as all of it is shorter
			return nil, nil
		}
	}
	if out == nil {
		return nil, errRange
	}
	return out, nil
}

// span reads one range: 0-4, 5- or -3.
func (e entity) span(s string) (span, error) {
	first, last, ok := strings.Cut(s, "-")
	if first, last = strings.Trim(first, " "), strings.Trim(last, " "); !ok || first == "" && last == "" {
		return span{}, errRange
	}
	number := func(s string) (int64, error) {
		if n, err := strconv.ParseUint(s, 10, 63); err == nil && s[0] != '+' {
			return int64(n), nil
		}
		return 0, errRange
	}
	out := span{0, e.size}
	var err error
	if first == "" {
		n, err := number(last)
		out.start = max(0, e.size-n)
		return out, err
	}
	if out.start, err = number(first); err != nil || last == "" {
		return out, err
	}
	n, err := number(last)
	out.end = min(n, e.size-1) + 1
	return out, err
}

// sendFile answers with a file, or what the request asks for of it.
func (st *state) sendFile(f *os.File, info fs.FileInfo) error {
	modified := info.ModTime().Truncate(time.Second)
	e := entity{modified: modified, size: info.Size()}
	e.etag = fmt.Sprintf(`"%x-%x"`, modified.Unix(), e.size)
	h := st.w.Header()
	h.Set("Content-Type", st.contentType())
	h.Set("Etag", e.etag)
	h.Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Length", strconv.FormatInt(e.size, 10))
	if st.whole() {
		return st.sendSpans(f, st.errStatus, span{0, e.size})
	}
	if answered, err := st.condition(e); answered {
		return err
	}
	spans, err := e.ranges(st.r.Header)
	switch {
	case err != nil:
		h.Del("Content-Length")
		st.w.addHeaders(http.StatusOK)
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(e.size, 10))
		return statusErr(http.StatusRequestedRangeNotSatisfiable, "%w", err)
	case spans == nil:
		h.Set("Accept-Ranges", "bytes")
		return st.sendSpans(f, http.StatusOK, span{0, e.size})
	case len(spans) == 1:
		h.Set("Content-Range", e.contentRange(spans[0]))
		h.Set("Content-Length", strconv.FormatInt(spans[0].end-spans[0].start, 10))
		return st.sendSpans(f, http.StatusPartialContent, spans[0])
	}
	return st.sendParts(f, e, spans)
}

func (e entity) contentRange(s span) string {
	return fmt.Sprintf("bytes %d-%d/%d", s.start, s.end-1, e.size)
}

// sendSpans sends the header and a part of a file.
func (st *state) sendSpans(f *os.File, status int, s span) error {
	st.w.WriteHeader(status)
	if st.r.Method == http.MethodHead {
		return nil
	}
	return st.copySpan(f, s)
}

func (st *state) copySpan(f *os.File, s span) error {
	if _, err := f.Seek(s.start, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(st.w, f, s.end-s.start)
	return err
}

// boundaries counts the responses of several parts.
var boundaries atomic.Uint64

// sendParts sends several parts of a file, each with a header of its own.
func (st *state) sendParts(f *os.File, e entity, spans []span) error {
	boundary := fmt.Sprintf("%020d", boundaries.Add(1))
	h := st.w.Header()
	heads := make([]string, len(spans))
	end := "\r\n--" + boundary + "--\r\n"
	length := int64(len(end))
	for i, s := range spans {
		heads[i] = "\r\n--" + boundary + "\r\nContent-Type: " + h.Get("Content-Type") + "\r\nContent-Range: " + e.contentRange(s) + "\r\n\r\n"
		length += int64(len(heads[i])) + s.end - s.start
	}
	h.Set("Content-Type", "multipart/byteranges; boundary="+boundary)
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	st.w.WriteHeader(http.StatusPartialContent)
	if st.r.Method == http.MethodHead {
		return nil
	}
	for i, s := range spans {
		if _, err := io.WriteString(st.w, heads[i]); err != nil {
			return err
		}
		if err := st.copySpan(f, s); err != nil {
			return err
		}
	}
	_, err := io.WriteString(st.w, end)
	return err
}
