// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"bytes"
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// variables calls f with the name of each variable of an nginx text.
func variables(text string, f func(name, whole string) string) string {
	var b []byte
	for i := 0; i < len(text); {
		if text[i] != '$' {
			b = append(b, literal(text[i:i+1])...)
			i++
			continue
		}
		name, length := variableAt(text[i:])
		if length == 0 {
			b = append(b, '$')
			i++
			continue
		}
		if before, found := bytes.CutSuffix(b, []byte{'\\'}); found {
			b = append(before, "{"+nginxhttp.Backslash+"}"...)
		}
		b = append(b, f(name, text[i:i+length])...)
		i += length
	}
	return string(b)
}

// variableAt reads a variable at the start of s, which begins with a dollar.
func variableAt(s string) (name string, length int) {
	if len(s) < 2 {
		return "", 0
	}
	if s[1] == '{' {
		end := strings.IndexByte(s, '}')
		if end < 3 || !nameOnly(s[2:end]) {
			return "", 0
		}
		return s[2:end], end + 1
	}
	if s[1] >= '1' && s[1] <= '9' {
		return s[1:2], 2
	}
	i := 1
	for i < len(s) && nameByte(s[i]) {
		i++
	}
	return s[1:i], map[bool]int{true: i, false: 0}[i > 1]
}

func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func nameOnly(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// literal escapes text for a place where placeholders are replaced.
func literal(s string) string {
	return strings.NewReplacer("{", `\{`, "}", `\}`).Replace(s)
}

// template turns an nginx text into one with placeholders. local are values
// known here, as that of $proxy_host.
func template(text string, local map[string]string) string {
	return variables(text, func(name, _ string) string {
		if v, ok := local[name]; ok {
			return v
		}
		return "{nginx." + strings.ToLower(name) + "}"
	})
}

func hasVariables(text string) bool {
	found := false
	variables(text, func(string, string) string { found = true; return "" })
	return found
}

// use is a variable in a directive.
type use struct {
	name string
	at   *dir
}

// uses notes the variables of a text; unknown ones are errors in the end, when
// all definitions have been seen.
func (a *adapter) uses(d *dir, text string) {
	variables(text, func(name, _ string) string {
		a.used = append(a.used, use{strings.ToLower(name), d})
		return ""
	})
}

// defines notes a variable that the configuration makes.
func (a *adapter) defines(d *dir, arg string) (string, error) {
	name, ok := strings.CutPrefix(arg, "$")
	if !ok || !nameOnly(name) {
		return "", d.errorf("invalid variable name %q: expected $name", arg)
	}
	name = strings.ToLower(name)
	if nginxhttp.Builtin(name) && name != "args" && name != "limit_rate" {
		return "", d.errorf("the variable $%s cannot be set", name)
	}
	if why, ok := notOurs[name]; ok {
		return "", d.errorf("$%s is not translated: %s", name, why)
	}
	a.known[name] = true
	return name, nil
}

// regex checks a regular expression and notes its groups.
func (a *adapter) regex(d *dir, expr string) error {
	re, err := regexp.Compile(expr)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok && (e.Code == syntax.ErrInvalidPerlOp || e.Code == syntax.ErrInvalidEscape) {
			return d.errorf("regular expression %q: %v; look-around and back references of PCRE are not available: write it without", expr, err)
		}
		return d.errorf("regular expression %q: %v", expr, err)
	}
	for _, n := range re.SubexpNames() {
		if n != "" {
			a.known[strings.ToLower(n)] = true
			if n != strings.ToLower(n) {
				return d.errorf("regular expression %q: write the group %q in lower case", expr, n)
			}
		}
	}
	return nil
}

// local variables of a proxied location.
var proxyVariables = map[string]bool{"proxy_host": true, "proxy_port": true}

// versionVariable is $nginx_version: the version whose defaults hold.
const versionVariable = "nginx_version"

// notOurs are variables of nginx that have no value here, with the reason.
var notOurs = func() map[string]string {
	reasons := map[string]string{
		"pipe":                       "pipelined requests are not told apart; take it out",
		"ssl_session_id":             "Go does not tell it; use $ssl_session_reused",
		"ssl_ciphers":                "Go does not tell what the client offers; use $ssl_cipher",
		"ssl_curves":                 "Go does not tell what the client offers; use $ssl_curve",
		"ssl_sigalg":                 "Go does not tell it; take it out",
		"ssl_client_sigalg":          "Go does not tell it; take it out",
		"ssl_client_s_dn_legacy":     "use $ssl_client_s_dn",
		"ssl_client_i_dn_legacy":     "use $ssl_client_i_dn",
		"upstream_queue_time":        "it is part of $request_time",
		"upstream_first_byte_time":   "it is a variable of stream; use $upstream_header_time",
		"upstream_session_time":      "it is a variable of stream; use $upstream_response_time",
		"upstream_last_server_name":  "use $upstream_addr",
		"proxy_internal_body_length": "it is nginx's own",
		"invalid_referer":            "valid_referers is not translated; use if ($http_referer ...)",
		"slice_range":                "slice is not translated; take it out",
		"memcached_key":              "there is no memcached",
		"secure_link":                "secure_link is not translated",
		"secure_link_expires":        "secure_link is not translated",
		"modern_browser":             "use map with $http_user_agent",
		"ancient_browser":            "use map with $http_user_agent",
		"msie":                       "use map with $http_user_agent",
		"date_local":                 "it is for ssi; use $time_local",
		"date_gmt":                   "it is for ssi; use $time_iso8601",
		"limit_conn_status":          "limit_conn is not translated",
		"limit_req_status":           "limit_req is not translated",
	}
	for why, names := range map[string]string{
		"the counters of connections are metrics here: use caddy_http_requests_in_flight": "connections_active connections_reading connections_writing connections_waiting",
		"the kernel's data of connections are not read; take it out":                      "tcpinfo_rtt tcpinfo_rttvar tcpinfo_snd_cwnd tcpinfo_rcv_space",
		"userid is not translated; use sticky cookie, or the application":                 "uid_got uid_set uid_reset",
		"fastcgi_pass is not translated":                                                  "fastcgi_script_name fastcgi_path_info",
		"caches are not translated":                                                       "upstream_cache_key upstream_cache_age upstream_cache_last_modified upstream_cache_etag",
	} {
		for name := range strings.FieldsSeq(names) {
			reasons[name] = why
		}
	}
	return reasons
}()

// checkVariables reports variables that nobody defines.
func (a *adapter) checkVariables() {
	for _, u := range a.streamUsed {
		if a.known["stream."+u.name] || streamBuiltin(u.name) {
			continue
		}
		if why, ok := notInStream[u.name]; ok {
			a.errs = append(a.errs, u.at.errorf("$%s is not translated: %s", u.name, why))
		} else {
			a.errs = append(a.errs, u.at.errorf("unknown variable $%s: nothing in the stream block defines it, or it is not translated", u.name))
		}
	}
	for _, u := range a.used {
		if a.known[u.name] || nginxhttp.Builtin(u.name) || proxyVariables[u.name] {
			continue
		}
		if _, err := strconv.Atoi(u.name); err == nil {
			continue
		}
		if why, ok := notOurs[u.name]; ok {
			a.errs = append(a.errs, u.at.errorf("$%s is not translated: %s", u.name, why))
			continue
		}
		a.errs = append(a.errs, u.at.errorf("unknown variable $%s: nothing in the configuration defines it, or it is not translated", u.name))
	}
}
