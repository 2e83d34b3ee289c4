// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/caddy-upstream/caddy-upstream/modules/nginxconf/nginxhttp"
)

// certificate is the ssl_certificate of a server with its key.
type certificate struct {
	cert, key string
	passwords string // the file with those of the key, if it has any
	tag       string
}

// tlsPolicies makes the certificates and policies of a socket.
func (a *adapter) tlsPolicies(s *socket, srv *caddyhttp.Server) error {
	var rest *caddytls.ConnectionPolicy
	for _, v := range s.vhosts {
		p, err := a.tlsPolicy(v)
		if err != nil {
			return err
		}
		if v == s.def {
			rest = p
			continue
		}
		var names []string
		for _, n := range v.names {
			switch {
			case n.regex || strings.HasSuffix(n.text, ".*"):
				a.warn(v.at, "the name %q does not choose a certificate", n.text)
			case strings.HasPrefix(n.text, "."):
				names = append(names, n.text[1:], "*"+n.text)
			case n.text != "" && n.text != "_":
				names = append(names, n.text)
			}
		}
		if names != nil {
			p.MatchersRaw = caddy.ModuleMap{"sni": caddyconfig.JSON(names, nil)}
			srv.TLSConnPolicies = append(srv.TLSConnPolicies, p)
		}
	}
	srv.TLSConnPolicies = append(srv.TLSConnPolicies, rest)
	off := false
	srv.StrictSNIHost = &off
	return nil
}

// tlsPolicy makes the policy of a server block.
func (a *adapter) tlsPolicy(v *vhost) (*caddytls.ConnectionPolicy, error) {
	if value(v.scope, "ssl_reject_handshake", false) {
		return &caddytls.ConnectionPolicy{Drop: true}, nil
	}
	c, err := a.certificate(v)
	if err != nil {
		return nil, err
	}
	p := &caddytls.ConnectionPolicy{CertSelection: &caddytls.CustomCertSelectionPolicy{AnyTag: []string{c.tag}}}
	return p, a.tlsOptions(v.scope, v.at, p)
}

// tlsOptions translates versions and client certificates.
func (a *adapter) tlsOptions(s *scope, at *dir, p *caddytls.ConnectionPolicy) error {
	if words := value(s, "ssl_protocols", []string(nil)); words != nil {
		if err := protocols(a, at, p, words); err != nil {
			return err
		}
	} else if !a.version.atLeast(1, 23, 4) { // TLS 1.3 was no default
		p.ProtocolMax = "tls1.2"
	}
	p.CipherSuites = value(s, "ssl_ciphers", []string(nil))
	mode := value(s, "ssl_verify_client", "off")
	if mode == "off" {
		return nil
	}
	authorities := a.clientAuthorities(s)
	modes := map[string]string{"on": "require_and_verify", "optional": "verify_if_given", "optional_no_ca": "request"}
	p.ClientAuthentication = &caddytls.ClientAuthentication{Mode: modes[mode]}
	lists := value(s, "ssl_crl", "")
	if mode == "optional_no_ca" {
		if lists != "" {
			return at.errorf("ssl_crl with ssl_verify_client optional_no_ca is not translated: use optional")
		}
		return nil
	}
	if authorities == nil {
		return at.errorf("no ssl_client_certificate for ssl_verify_client")
	}
	p.ClientAuthentication.CARaw = caddyconfig.JSONModuleObject(map[string][]string{"pem_files": authorities}, "provider", "file", nil)
	if lists != "" {
		v := nginxhttp.Revocation{Files: []string{a.path(lists)}}
		p.ClientAuthentication.VerifiersRaw = []json.RawMessage{caddyconfig.JSONModuleObject(v, "verifier", "nginx_crl", nil)}
	}
	return nil
}

// clientAuthorities are the files with those that may sign clients.
func (a *adapter) clientAuthorities(s *scope) (files []string) {
	for _, name := range []string{"ssl_client_certificate", "ssl_trusted_certificate"} {
		if file := value(s, name, ""); file != "" {
			files = append(files, a.path(file))
		}
	}
	return files
}

// readProtocols checks the names of versions of TLS.
func readProtocols(a *adapter, d *dir) (any, error) {
	for _, w := range d.args {
		if !slices.Contains([]string{"SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}, w) {
			return nil, d.errorf("invalid value %q", w)
		}
	}
	return d.args, nil
}

func protocols(a *adapter, at *dir, p *caddytls.ConnectionPolicy, words []string) error {
	has := map[string]bool{}
	for _, w := range words {
		has[w] = true
	}
	switch {
	case has["TLSv1.2"] && has["TLSv1.3"]:
	case has["TLSv1.3"]:
		p.ProtocolMin = "tls1.3"
	case has["TLSv1.2"]:
		p.ProtocolMax = "tls1.2"
	default:
		return at.errorf("ssl_protocols: only TLSv1.2 and TLSv1.3 are there")
	}
	if len(words) > 2 {
		a.warn(at, "ssl_protocols: only TLSv1.2 and TLSv1.3 are there")
	}
	return nil
}

// certificate finds the certificate of a server block.
func (a *adapter) certificate(v *vhost) (*certificate, error) {
	certs := list[string](v.scope, "ssl_certificate")
	keys := list[string](v.scope, "ssl_certificate_key")
	switch {
	case len(certs) == 0:
		return nil, v.at.errorf("no ssl_certificate is defined for listen ... ssl")
	case len(certs) != len(keys):
		return nil, v.at.errorf("%d ssl_certificate and %d ssl_certificate_key: each needs the other", len(certs), len(keys))
	case hasVariables(certs[0] + keys[0]):
		return nil, v.at.errorf("ssl_certificate with variables is not translated: write the file")
	}
	passwords := a.passwordFile(v.scope)
	key := strings.Join(append(append([]string{passwords}, certs...), keys...), "\x00")
	if c := a.certIndex[key]; c != "" {
		return &certificate{tag: c}, nil
	}
	tag := "cert" + strconv.Itoa(len(a.certIndex))
	a.certIndex[key] = tag
	for i := range certs {
		a.certificates = append(a.certificates, &certificate{a.path(certs[i]), a.path(keys[i]), passwords, tag})
	}
	return &certificate{tag: tag}, nil
}

// passwordFile is the file with the passwords of a server's keys.
func (a *adapter) passwordFile(s *scope) string {
	if file := value(s, "ssl_password_file", ""); file != "" {
		return a.path(file)
	}
	return ""
}

// tlsApp loads the certificates.
func (a *adapter) tlsApp() json.RawMessage {
	var plain []caddytls.CertKeyFilePair
	var encrypted nginxhttp.Certificates
	for _, c := range a.certificates {
		if tags := []string{c.tag}; c.passwords == "" {
			plain = append(plain, caddytls.CertKeyFilePair{Certificate: c.cert, Key: c.key, Tags: tags})
		} else {
			encrypted = append(encrypted, nginxhttp.CertificateFiles{Certificate: c.cert, Key: c.key, PasswordFile: c.passwords, Tags: tags})
		}
	}
	loaders := map[string]any{}
	if plain != nil {
		loaders["load_files"] = plain
	}
	if encrypted != nil {
		loaders["nginx_encrypted"] = encrypted
	}
	return caddyconfig.JSON(map[string]any{"certificates": loaders}, nil)
}
