// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/l4stream"
)

// proxyTLS translates proxy_ssl_* and grpc_ssl_*.
func (a *adapter) proxyTLS(s *scope, p *proxyPass, t *target) (*clienttls.Settings, error) {
	if !p.https {
		return nil, nil
	}
	c := new(clienttls.Settings)
	host, _, _ := hostPort(t.host, 443)
	name := template(value(s, p.option("ssl_name"), host), map[string]string{"proxy_host": literal(t.host), "proxy_port": t.port})
	if value(s, p.option("ssl_server_name"), false) || value(s, p.option("ssl_verify"), false) {
		c.ServerName = name
	}
	return c, a.trust(s, p.at, p.option, c)
}

// streamProxyTLS translates proxy_ssl_* of stream.
func (a *adapter) streamProxyTLS(s *scope, d *dir) (*l4stream.UpstreamTLS, error) {
	t := &l4stream.UpstreamTLS{NoSNI: !value(s, "proxy_ssl_server_name", false)}
	for _, w := range value(s, "proxy_ssl_alpn", []string(nil)) {
		t.ALPN = append(t.ALPN, a.streamTemplate(d, w))
	}
	host, _, _ := hostPort(d.args[0], 1)
	t.ServerName = a.streamTemplate(d, value(s, "proxy_ssl_name", host))
	return t, a.trust(s, d, new(proxyPass).option, &t.Settings)
}

// trust translates what servers are trusted, and what they trust. option makes
// the names of directives.
func (a *adapter) trust(s *scope, at *dir, option func(string) string, c *clienttls.Settings) error {
	if value(s, option("ssl_verify"), false) {
		ca := value(s, option("ssl_trusted_certificate"), "")
		if ca == "" {
			return at.errorf("no %s for %s", option("ssl_trusted_certificate"), option("ssl_verify"))
		}
		c.CARaw = caddyconfig.JSONModuleObject(map[string][]string{"pem_files": {a.path(ca)}}, "provider", "file", nil)
		if lists := value(s, option("ssl_crl"), ""); lists != "" {
			c.CRLFiles = []string{a.path(lists)}
		}
	} else {
		c.InsecureSkipVerify = true // and without verification nginx reads no lists
	}
	switch words := value(s, option("ssl_protocols"), []string(nil)); {
	case words == nil:
	case !slices.Contains(words, "TLSv1.2"):
		c.ProtocolMin = "tls1.3"
	case !slices.Contains(words, "TLSv1.3"):
		c.ProtocolMax = "tls1.2"
	}
	c.NoSessionResumption = !value(s, option("ssl_session_reuse"), true)
	cert, key := value(s, option("ssl_certificate"), ""), value(s, option("ssl_certificate_key"), "")
	switch {
	case cert == "":
		return nil
	case key == "":
		return at.errorf("no %s for %s", option("ssl_certificate_key"), option("ssl_certificate"))
	case hasVariables(cert + key):
		return at.errorf("%s with variables is not translated: write the file", option("ssl_certificate"))
	}
	c.ClientCertificateFile, c.ClientCertificateKeyFile = a.path(cert), a.path(key)
	if passwords := value(s, option("ssl_password_file"), ""); passwords != "" {
		c.ClientCertificatePasswordFile = a.path(passwords)
	}
	return nil
}
