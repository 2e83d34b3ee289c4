// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"fmt"
	"net/http"
	"testing"
)

func TestRangesAreReadAsNginxDoes(t *testing.T) {
	e := entity{size: 16, etag: `"x"`}
	for in, want := range map[string]string{
		"": "[]", "bytes=0-3": "[{0 4}]", "BYTES= 2 - 5 ": "[{2 6}]", "bytes=3-": "[{3 16}]", "bytes=-4": "[{12 16}]", "bytes=-99": "[{0 16}]",
		"bytes=0-99999999": "[{0 16}]", "bytes=0-1,3-4": "[{0 2} {3 5}]", "bytes=0-1,99-": "[{0 2}]", "bytes=0-9,0-9": "[]", "chars=0-1": "[]",
		"bytes=16-": "!", "bytes=3-1": "!", "bytes=x": "!", "bytes=": "[]", "bytes=-": "!", "bytes=,1": "!", "bytes=-0": "!", "bytes=+1-2": "!", "bytes=0-1,x": "!", "bytes=0-99999999999999999999": "!",
	} {
		spans, err := e.ranges(http.Header{"Range": {in}})
		got := fmt.Sprint(spans)
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("ranges(%q) = %s, want %s", in, got, want)
		}
	}
	for ifRange, want := range map[string]int{`"x"`: 1, `"y"`: 0, "nonsense": 0} {
		if spans, err := e.ranges(http.Header{"Range": {"bytes=0-1"}, "If-Range": {ifRange}}); err != nil || len(spans) != want {
			t.Errorf("with If-Range %s: %v, %v; want %d ranges", ifRange, spans, err, want)
		}
	}
}

// Ranges are inside the file, not empty, and together not longer than it.
func FuzzRanges(f *testing.F) {
	for _, s := range []string{"bytes=0-3", "bytes=-4,5-", "bytes= 1 - 2 ,3-4", "bytes=9-1,0-"} {
		f.Add(s, int64(16))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		if size < 0 {
			return
		}
		spans, err := entity{size: size}.ranges(http.Header{"Range": {s}})
		var total int64
		for _, p := range spans {
			if p.start < 0 || p.start >= p.end || p.end > size {
				t.Fatalf("ranges(%q) of %d bytes = %v", s, size, spans)
			}
			total += p.end - p.start
		}
		if total > size || err != nil && spans != nil {
			t.Fatalf("ranges(%q) of %d bytes = %v, %v", s, size, spans, err)
		}
	})
}

func TestTagsAreComparedAsNginxDoes(t *testing.T) {
	for _, c := range []struct {
		etag, list string
		weak, want bool
	}{
		{`"a"`, `"a"`, false, true}, {`"a"`, `"b", "a"`, false, true}, {`"a"`, `W/"a"`, false, false}, {`"a"`, `W/"a"`, true, true},
		{`W/"a"`, `"a"`, true, true}, {"", "*", false, true}, {"", `"a"`, true, false}, {`"a"`, "", true, false}, {`"a"`, `"b"`, true, false},
	} {
		if got := (entity{etag: c.etag}).matches(c.list, c.weak); got != c.want {
			t.Errorf("matches(%s, %s, weak %v) = %v, want %v", c.etag, c.list, c.weak, got, c.want)
		}
	}
}
