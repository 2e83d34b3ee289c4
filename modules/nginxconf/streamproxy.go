// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/caddy-upstream/caddy-upstream/l4stream"
)

// streamHandler makes the content handler.
func (a *adapter) streamHandler(v *streamServer) (json.RawMessage, error) {
	d := v.content
	switch d.name {
	case "return":
		return handler("return", l4stream.Return{Text: a.streamTemplate(d, d.args[0])}), nil
	case "pass":
		to := d.args[0]
		if !hasVariables(to) {
			address, _, err := listenAddress(to, true)
			if err != nil {
				return nil, d.errorf("%v", err)
			}
			to = address
		}
		return handler("pass", l4stream.Pass{To: a.streamTemplate(d, to)}), nil
	}
	return a.streamProxy(v, d)
}

// streamTarget sets where a session goes.
func (a *adapter) streamTarget(p *l4stream.ProxyPass, d *dir) error {
	text := d.args[0]
	if g := a.streamGroups[strings.ToLower(text)]; g != nil {
		p.To = []string{g.id}
		return nil
	}
	if !hasVariables(text) {
		if !hasPort(text) {
			return d.errorf("no port in upstream %q, and no upstream block of that name", text)
		}
		address, err := serverAddress(text)
		if err != nil {
			return d.errorf("%v", err)
		}
		p.To = []string{address}
		return nil
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 && !hasVariables(text[:i]) { // a port by a variable
		if host := strings.Trim(text[:i], "[]"); net.ParseIP(host) != nil {
			p.To, p.AllowDynamic = []string{a.streamTemplate(d, text)}, []string{host}
			return nil
		}
	}
	name, _ := variableAt(text)
	values, known := a.valuesOf("stream.", strings.ToLower(name), 0)
	if !isVariable(text) || !known {
		return d.errorf("the values of %s are not known here: use one variable of map, set or split_clients", text)
	}
	p.To = []string{a.streamTemplate(d, text)}
	for _, v := range values {
		if g := a.streamGroups[strings.ToLower(v)]; g != nil {
			if g.id != v {
				return d.errorf("%s may be %q, a group that is called %s in Caddy: rename the upstream block to that", text, v, g.id)
			}
			continue
		}
		if v == "" {
			continue
		}
		host, _, err := hostPort(v, 1)
		if err != nil || net.ParseIP(host) == nil || !hasPort(v) {
			return d.errorf("%s may be %q: it is neither an upstream block nor an IP address with a port", text, v)
		}
		p.AllowDynamic = append(p.AllowDynamic, host)
	}
	return nil
}

func (a *adapter) streamProxy(v *streamServer, d *dir) (json.RawMessage, error) {
	s := v.scope
	p := &l4stream.ProxyPass{
		ConnectTimeout: duration(s, "proxy_connect_timeout"), Timeout: duration(s, "proxy_timeout"),
		NextUpstreamTries:   value(s, "proxy_next_upstream_tries", 0),
		NextUpstreamTimeout: duration(s, "proxy_next_upstream_timeout"),
		HalfClose:           value(s, "proxy_half_close", false),
		BufferSize:          value(s, "proxy_buffer_size", int64(0)),
		SocketKeepalive:     value(s, "proxy_socket_keepalive", false),
		ProxyRequests:       value(s, "proxy_requests", 0),
	}
	if err := a.streamTarget(p, d); err != nil {
		return nil, err
	}
	if !value(s, "proxy_next_upstream", true) {
		p.NextUpstream = "off"
	}
	if !value(s, "tcp_nodelay", true) {
		p.NoDelay = "off"
	}
	if n := value(s, "proxy_responses", -1); n >= 0 {
		p.ProxyResponses = &n
	}
	switch value(s, "proxy_protocol", "off") {
	case "on":
		p.ProxyProtocol = "v1"
	case "v2":
		p.ProxyProtocol = "v2"
	}
	if bind := value(s, "proxy_bind", "off"); bind != "off" {
		p.Bind = a.streamTemplate(d, bind)
	}
	for name, to := range map[string]*string{"proxy_upload_rate": &p.UploadRate, "proxy_download_rate": &p.DownloadRate} {
		rate := value(s, name, "0")
		switch {
		case hasVariables(rate):
			*to = a.streamTemplate(d, rate)
		default:
			n, err := parseSize(rate)
			if err != nil {
				return nil, d.errorf("%s: %v", name, err)
			}
			if n > 0 {
				*to = fmt.Sprint(n)
			}
		}
	}
	if value(s, "proxy_ssl", false) {
		var err error
		if p.SSL, err = a.streamProxyTLS(s, d); err != nil {
			return nil, err
		}
	}
	return handler("proxy_pass", p), nil
}
