// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"
)

// TestMethodLinesBecomeJSON also reads the JSON back, strictly, and validates.
func TestMethodLinesBecomeJSON(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`ip_hash`, `{}`},
		{`hash {uri}`, `{"key":"{http.request.uri}"}`},
		{`hash {query.user}-{host} consistent`, `{"key":"{http.request.uri.query.user}-{http.request.host}","consistent":true}`},
		{`hash {stream.remote_addr} consistent balance_factor=1.25`, `{"key":"{stream.remote_addr}","consistent":true,"balance_factor":1.25}`},
		{`random`, `{}`},
		{`random two`, `{"two":true}`},
		{`random two least_conn`, `{"two":true}`},
		{`random two least_time=header`, `{"two":true,"least_time":"header"}`},
		{`random two least_time=last_byte`, `{"two":true,"least_time":"last_byte"}`},
		{`random two least_time=connect`, `{"two":true,"least_time":"connect"}`},
		{`least_time header`, `{"time":"header"}`},
		{`least_time last_byte inflight`, `{"time":"last_byte","inflight":true}`},
		{`least_time connect`, `{"time":"connect"}`},
		{`least_time ewma`, `{"time":"header","ewma":true}`},
		{`least_time ewma last_byte`, `{"time":"last_byte","ewma":true}`},
	} {
		mod, err := read(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		got, err := json.Marshal(mod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.line, diff)
		}
		info, _ := caddy.GetModule("upstream.balancers." + strings.Fields(c.line)[0])
		back := info.New()
		if err := caddy.StrictUnmarshalJSON(got, back); err != nil {
			t.Errorf("%s: reading %s: %v", c.line, got, err)
		}
		if !reflect.DeepEqual(back, mod) {
			t.Errorf("%s: read back %+v, want %+v", c.line, back, mod)
		}
		if v, ok := back.(caddy.Validator); ok {
			if err := v.Validate(); err != nil {
				t.Errorf("%s: %v", c.line, err)
			}
		}
	}
}

func read(line string) (caddyfile.Unmarshaler, error) {
	d := caddyfile.NewTestDispenser(line)
	d.Next()
	return caddyfile.UnmarshalModule(d, "upstream.balancers."+strings.Fields(line)[0])
}

func TestMethodLinesThatAreWrongSayWhatWasExpected(t *testing.T) {
	for line, want := range map[string]string{
		`ip_hash x`:                            `unexpected argument "x"`,
		`hash`:                                 `the key is missing`,
		`hash k ketama`:                        `expected consistent or balance_factor`,
		`hash k consistent consistent`:         `given twice`,
		`hash k balance_factor=2`:              `balance_factor needs consistent`,
		`hash k consistent balance_factor=0.5`: `expected a number of 1 or more`,
		`hash k consistent balance_factor=NaN`: `expected a number of 1 or more`,
		`hash k consistent balance_factor=Inf`: `expected a number from 1`,
		`hash k consistent balance_factor=2 balance_factor=2`: `given twice`,
		`random three`:                    `expected two`,
		`random two most_conn`:            `expected least_conn`,
		`random two least_time=`:          `expected least_conn`,
		`random two least_time=soon`:      `expected header, first_byte, last_byte or connect`,
		`random two least_conn x`:         `expected no more`,
		`least_time`:                      `expected header, first_byte, last_byte, connect or ewma`,
		`least_time soon`:                 `expected header`,
		`least_time header inflight x`:    `unexpected argument "x"`,
		`least_time ewma header inflight`: `unexpected argument "inflight"`,
	} {
		if _, err := read(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", line, err, want)
		}
	}
}
