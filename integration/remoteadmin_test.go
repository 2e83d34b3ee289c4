// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// remotely is a Caddy with two groups whose remote admin endpoint knows three
// certificates: one may read groups, one may change app, one may do everything.
func remotely(t *testing.T, names []string, keys map[string]string, backend string) *proxy {
	t.Helper()
	permissions := map[string][]any{
		"reader": {map[string]any{"paths": []string{"/upstream/groups"}, "methods": []string{"GET"}}},
		"scaler": {map[string]any{"paths": []string{"/upstream/groups/app/servers"}, "methods": []string{"POST", "PATCH", "DELETE"}}},
	}
	var access []any
	for _, name := range names {
		one := map[string]any{"public_keys": []string{keys[name]}}
		if p := permissions[name]; p != nil {
			one["permissions"] = p
		}
		access = append(access, one)
	}
	group := func(server string) any {
		return map[string]any{"servers": []any{map[string]any{"id": server, "address": backend}}}
	}
	raw, err := json.Marshal(map[string]any{
		"storage": map[string]any{"module": "file_system", "root": t.TempDir()},
		"admin": map[string]any{
			"config":   map[string]any{"persist": false},
			"identity": map[string]any{"identifiers": []string{"localhost"}, "issuers": []any{map[string]any{"module": "internal"}}},
			"remote":   map[string]any{"listen": `127.0.0.1:{{port "remote"}}`, "access_control": access},
		},
		"apps": map[string]any{
			"pki":      map[string]any{"certificate_authorities": map[string]any{"local": map[string]any{"install_trust": false}}},
			"upstream": map[string]any{"groups": map[string]any{"app": group("a"), "other": group("o")}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, string(bytes.ReplaceAll(raw, []byte(`\"`), []byte(`"`)))) // of the template
}

func TestRemoteAdminKeepsToItsAccessRules(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	names := []string{"reader", "scaler", "root"}
	keys, clients := map[string]string{}, map[string]*http.Client{}
	for _, name := range append(names, "stranger") {
		pair, _, _ := ca.issue(name)
		keys[name] = base64.StdEncoding.EncodeToString(pair.Certificate[0])
		clients[name] = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				ServerName: "localhost", InsecureSkipVerify: true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
			},
		}}
	}
	clients["nobody"] = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{ServerName: "localhost", InsecureSkipVerify: true},
	}}
	b := testnet.NewBackend(t, named("a"))
	p := remotely(t, names, keys, b.Addr())

	ask := func(who, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(context.Background(), method, "https://"+p.Addr("remote")+path, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := clients[who].Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	testnet.Eventually(t, 30*time.Second, "the certificate of the remote endpoint", func() bool {
		status, _ := ask("root", "GET", "/upstream/groups", "")
		return status == 200
	})
	const app, other = "/upstream/groups/app", "/upstream/groups/other"
	for _, c := range []struct {
		who, method, path, body string
		want                    int // 0: not even a TLS connection
	}{
		{"reader", "GET", "/upstream/groups", "", 200},
		{"reader", "GET", app + "/servers/a", "", 200},
		{"reader", "GET", other, "", 200},
		{"reader", "PATCH", app + "/servers/a", `{"weight":9}`, 403},
		{"reader", "DELETE", app + "/servers/a", "", 403},
		{"reader", "POST", app + "/servers", `{"address":"10.0.0.1:80"}`, 403},
		{"reader", "POST", app + "/reset", "", 403},
		{"reader", "GET", "/config/", "", 403},
		{"reader", "POST", "/load", `{}`, 403},
		{"scaler", "GET", app + "/servers", "", 403},
		{"scaler", "POST", app + "/servers", `{"id":"b","address":"` + b.Addr() + `"}`, 201},
		{"scaler", "PATCH", app + "/servers/b", `{"drain":true}`, 200},
		{"scaler", "DELETE", app + "/servers/b?drain_timeout=1s", "", 200},
		{"scaler", "POST", app + "/reset", "", 403},
		{"scaler", "PATCH", other + "/servers/o", `{"weight":9}`, 403},
		{"scaler", "PATCH", app + "/servers/..%2F..%2Fother%2Fservers%2Fo", `{"weight":9}`, 404},
		{"scaler", "PATCH", app + "/servers%2F..%2F..%2Fother/servers/o", `{"weight":9}`, 404},
		{"root", "PATCH", other + "/servers/o", `{"weight":2}`, 200},
		{"stranger", "GET", "/upstream/groups", "", 0},
		{"nobody", "GET", "/upstream/groups", "", 0},
	} {
		status, text := ask(c.who, c.method, c.path, c.body)
		if status != c.want && !(c.want == 404 && status == 403) {
			t.Errorf("%s: %s %s: %d %s, want %d", c.who, c.method, c.path, status, text, c.want)
		}
	}
	if s := p.servers("app"); len(s) != 1 || s[0].Weight != 1 {
		t.Errorf("app: %+v, want a as it was", s)
	}
	if s := p.servers("other"); len(s) != 1 || s[0].Weight != 2 {
		t.Errorf("other: %+v, want weight 2, from root", s)
	}
}

func TestTheAPIWorksOverAUnixSocketThatTheConfigurationNames(t *testing.T) {
	t.Parallel()
	b := backends(t, 1)
	dir, err := os.MkdirTemp("", "cu") // short, for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := serve(t, "\tadmin unix/"+dir+"/other.sock\n"+group("app", b[0].Addr()+" id=a"), "\tproxy_pass app")
	p.UseAdmin(dir + "/other.sock")
	p.change(200, "PATCH", "/upstream/groups/app/servers/a", `{"weight":5}`)
	if s := p.servers("app"); len(s) != 1 || s[0].Weight != 5 {
		t.Errorf("servers: %+v, want weight 5", s)
	}
	out, errs, err := p.Run("upstream", "list", "app", "--address", "unix/"+dir+"/other.sock")
	if err != nil || !strings.Contains(out, "5") || strings.Contains(out, "\x1b") {
		t.Errorf("caddy upstream list over the socket: %v, %s%s; want the weight, and no colours in a pipe", err, out, errs)
	}
}
