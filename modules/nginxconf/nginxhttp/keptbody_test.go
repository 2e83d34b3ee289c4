// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestABodyIsInItsVariableUnlessItIsLongerThanTheLocationKeeps(t *testing.T) {
	for keep, want := range map[int64]string{0: "", -1: "", 4: "", 5: "hello"} {
		st := &state{r: httptest.NewRequest("POST", "/", strings.NewReader("hello")), proxied: true}
		st.keepBody(&Location{KeepBody: keep})
		if got, err := io.ReadAll(st.r.Body); string(got) != "hello" || err != nil {
			t.Fatalf("the body is %q, %v", got, err)
		}
		if got := requestBody(st); got != want {
			t.Errorf("keep_body %d: $request_body = %q, want %q", keep, got, want)
		}
	}
}
