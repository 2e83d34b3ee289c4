// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// tlv is an additional field of a PROXY header.
func tlv(kind byte, value string) string {
	return string(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))) + value
}

// proxyV2 is a PROXY header of version 2 for a client and a server over IPv4.
func proxyV2(tlvs ...string) string {
	rest := "\xc0\x00\x02\x07\xc0\x00\x02\x08" + "\x04\x57\x08\xae" + strings.Join(tlvs, "") // 192.0.2.7:1111, 192.0.2.8:2222
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11" + string(binary.BigEndian.AppendUint16(nil, uint16(len(rest)))) + rest
}

// Debian's nginx is too old to have these variables: what is wanted is written.
func TestFieldsOfAPROXYHeaderReachAnswersServersAndLogs(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	_, cert, key := ca.issue("one.example")
	backend := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer { return testnet.Answer{Body: r.Get("X-TLV")} })
	dir := t.TempDir()
	plain, secure := testnet.Reserve(t).Addr(), testnet.Reserve(t).Addr()
	conf := fmt.Sprintf(`events {}
http {
	log_format tlv '$proxy_protocol_addr:$proxy_protocol_port $proxy_protocol_server_addr:$proxy_protocol_server_port $remote_addr "$proxy_protocol_tlv_authority" "$proxy_protocol_tlv_0xe1"';
	access_log %s/access.log tlv;
	map $proxy_protocol_tlv_ssl_cn $who { default nobody; client.example somebody; }
	server {
		listen %s proxy_protocol;
		listen %s ssl proxy_protocol;
		ssl_certificate %s; ssl_certificate_key %s;
		set_real_ip_from 127.0.0.1;
		real_ip_header proxy_protocol;
		location / { return 200 "[$proxy_protocol_tlv_alpn] [$proxy_protocol_tlv_authority] [$proxy_protocol_tlv_unique_id] [$proxy_protocol_tlv_netns] [$proxy_protocol_tlv_0x02] [$proxy_protocol_tlv_0xe1] [$proxy_protocol_tlv_0xe2]"; }
		location /ssl { return 200 "[$proxy_protocol_tlv_ssl_verify] [$proxy_protocol_tlv_ssl_version] [$proxy_protocol_tlv_ssl_cn] [$proxy_protocol_tlv_ssl_cipher] [$proxy_protocol_tlv_ssl_sig_alg] [$proxy_protocol_tlv_ssl_key_alg] [$proxy_protocol_tlv_ssl_0x21] $who"; }
		location /proxy { proxy_set_header X-TLV "$proxy_protocol_tlv_authority $proxy_protocol_tlv_ssl_cn"; proxy_pass http://%s; }
		location /if { if ($proxy_protocol_tlv_authority = a.example) { return 403; } return 200 other; }
	}
}
`, dir, plain, secure, cert, key, backend.Addr())
	startAdapted(t, conf, dir)
	ssl := tlv(0x20, "\x07\x00\x00\x00\x00"+tlv(0x21, "TLSv1.3")+tlv(0x22, "client.example")+tlv(0x23, "TLS_AES_128_GCM_SHA256")+tlv(0x24, "SHA256")+tlv(0x25, "RSA2048"))
	full := proxyV2(tlv(1, "h2"), tlv(2, "a.example"), tlv(5, "id-7"), tlv(0x30, "ns"), tlv(0xe1, "vpce-1"), ssl)
	ask := func(header, path string, secured bool) string {
		t.Helper()
		addr := plain
		if secured {
			addr = secure
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Write([]byte(header)); err != nil {
			t.Fatal(err)
		}
		if secured {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		}
		res, err := testnet.NewClient(c).Do("GET", path, []string{"Host: x", "Connection: close"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(res.Status, " ", res.Text())
	}
	bare := proxyV2()
	lines := 0
	for _, secured := range []bool{false, true} {
		for _, tt := range []struct{ header, path, want, log string }{ // the text of 403 is a page
			{full, "/", "200 [h2] [a.example] [id-7] [ns] [a.example] [vpce-1] []", `"a.example" "vpce-1"`},
			{full, "/ssl", "200 [0] [TLSv1.3] [client.example] [TLS_AES_128_GCM_SHA256] [SHA256] [RSA2048] [TLSv1.3] somebody", `"a.example" "vpce-1"`},
			{full, "/proxy", "200 a.example client.example", `"a.example" "vpce-1"`},
			{full, "/if", "403 ", `"a.example" "vpce-1"`},
			{bare, "/", "200 [] [] [] [] [] [] []", `"-" "-"`},
			{bare, "/ssl", "200 [] [] [] [] [] [] [] nobody", `"-" "-"`},
			{bare, "/if", "200 other", `"-" "-"`},
		} {
			if got := ask(tt.header, tt.path, secured); !strings.HasPrefix(got, tt.want) || tt.want != "403 " && got != tt.want {
				t.Errorf("GET %s, TLS %t: %s\nwant %s", tt.path, secured, got, tt.want)
			}
			if got, want := logLine(t, filepath.Join(dir, "access.log"), lines), "192.0.2.7:1111 192.0.2.8:2222 192.0.2.7 "+tt.log; got != want {
				t.Errorf("GET %s, TLS %t: the log says %s\nwant %s", tt.path, secured, got, want)
			}
			lines++
		}
	}
}
