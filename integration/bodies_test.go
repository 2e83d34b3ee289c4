// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// As in nginx after error_page or X-Accel-Redirect: what was buffered is sent
// again, and what was not is never taken for an empty body.
func TestASecondHandlerOfARequestGetsTheWholeBodyToo(t *testing.T) {
	t.Parallel()
	echo := testnet.NewBackend(t, testnet.Answer{Echo: true})
	none := testnet.NewBackend(t, testnet.Answer{Status: 204})
	p := serve(t, group("dead", testnet.RefusedAddr(t))+group("echo", echo.Addr())+group("none", none.Addr()), `
	handle /error {
		proxy_pass dead
	}
	handle /response {
		proxy_pass none {
			handle_response {
				proxy_pass echo
			}
		}
	}
	handle /foreign {
		reverse_proxy {
			lb_policy upstream none
			transport next_upstream {
				transport http
			}
			handle_response {
				proxy_pass echo {
					request_buffering off
				}
			}
		}
	}
	handle /thrice {
		proxy_pass none {
			handle_response {
				proxy_pass dead
			}
		}
	}
	handle /unbuffered {
		proxy_pass none {
			request_buffering off
			handle_response {
				proxy_pass echo
			}
		}
	}
	handle /neither {
		proxy_pass none {
			request_buffering off
			handle_response {
				proxy_pass echo {
					request_buffering off
				}
			}
		}
	}
	handle_errors 502 {
		proxy_pass echo
	}`)
	for _, size := range []int{7, 100_000} { // in memory, and in a file
		content := bytes.Repeat([]byte("x"), size)
		chunks := []byte(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, content))
		for _, target := range []string{"/error", "/response", "/foreign", "/thrice", "/unbuffered", "/neither"} {
			lost := strings.HasPrefix(target, "/un") || target == "/neither"
			for framing, res := range map[string]testnet.Response{
				"length":  p.post(target, content),
				"chunked": p.post(target, chunks, "Transfer-Encoding: chunked"),
			} {
				whole := res.Status == 200 && res.BodySHA256 == testnet.SHA256(content)
				if whole == lost || lost && res.Status < 400 {
					t.Errorf("%s, %s of %d: status %d, echo of %d bytes", target, framing, size, res.Status, len(res.Body))
				}
			}
		}
	}
	p.waitConns(0)
	base := p.Usage()
	for range 10 {
		p.post("/thrice", make([]byte, 100_000))
	}
	p.AssertReturnsTo(base, 10*time.Second)
}

func TestAnEmptyBodyStaysEmptyForASecondHandler(t *testing.T) {
	t.Parallel()
	echo := testnet.NewBackend(t, testnet.Answer{Echo: true})
	p := serve(t, group("dead", testnet.RefusedAddr(t))+group("echo", echo.Addr()), `
	proxy_pass dead
	handle_errors 502 {
		proxy_pass echo
	}`)
	if res := p.post("/", nil, "Content-Length: 0"); res.Status != 200 || len(res.Body) != 0 {
		t.Errorf("length: %d %q, want an empty 200", res.Status, res.Body)
	}
	if res := p.post("/", []byte("0\r\n\r\n"), "Transfer-Encoding: chunked"); res.Status != 200 || len(res.Body) != 0 {
		t.Errorf("chunked: %d %q, want an empty 200", res.Status, res.Body)
	}
	if res := p.get("/"); res.Status != 200 {
		t.Errorf("GET: status %d, want 200", res.Status)
	}
}
