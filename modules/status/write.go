// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"go.uber.org/zap"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

// The token is in a cookie that scripts cannot read, and in the JSON that only
// the page's own origin can. A change has to bring both, and they have to be
// equal. Nothing is kept, so that several Caddys can serve one page.
const (
	cookieName  = "upstream_status"
	tokenHeader = "X-Upstream-Status-Token"
	tokenLength = 26 // of rand.Text
)

// token returns the browser's token; a browser without one gets it now.
func token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(cookieName); err == nil && len(c.Value) == tokenLength {
		return c.Value
	}
	value := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	return value
}

// maxChange is the largest body of a change, in bytes.
const maxChange = 4 << 10

// request is a change that the page asks for.
type request struct {
	Group  string `json:"group"`
	Server string `json:"server"`
	// Fields are drain, down and weight; null is the default.
	Fields map[string]json.RawMessage `json:"fields"`
}

// changeable are the fields that the page may change.
var changeable = map[string]bool{"drain": true, "down": true, "weight": true}

func (h *Handler) change(w http.ResponseWriter, r *http.Request) error {
	refuse := func(status int, why string) error { return answer(w, status, map[string]string{"error": why}) }
	if !h.Write {
		return refuse(http.StatusForbidden, "this page only shows: its handler is configured without write")
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return refuse(http.StatusForbidden, "the request comes from another site")
	}
	c, err := r.Cookie(cookieName)
	if err != nil || len(c.Value) != tokenLength || subtle.ConstantTimeCompare([]byte(c.Value), []byte(r.Header.Get(tokenHeader))) != 1 {
		return refuse(http.StatusForbidden, "the token is missing or wrong: load the page again")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "expected Content-Type application/json")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChange))
	if err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "the body cannot be read, or is too large")
	}
	var change request
	if err := json.Unmarshal(raw, &change); err != nil {
		return refuse(http.StatusBadRequest, "the body is no change in JSON")
	}
	for name := range change.Fields {
		if !changeable[name] {
			return refuse(http.StatusBadRequest, "only drain, down and weight can be changed here")
		}
	}
	if err := upstream.Patch(change.Group, change.Server, change.Fields); err != nil {
		return refuse(upstream.StatusOf(err), err.Error())
	}
	h.logger.Info("server changed on the status page", zap.String("group", change.Group), zap.String("server", change.Server),
		zap.Any("fields", change.Fields), zap.String("remote_addr", r.RemoteAddr))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
