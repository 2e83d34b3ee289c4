// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/exchange"
	"github.com/caddy-upstream/caddy-upstream/internal/peer"
	"github.com/caddy-upstream/caddy-upstream/internal/wrap"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(Transport{}) }

// Defaults of the request buffer.
const (
	defaultBufferSize = 16 << 10
	defaultTempFile   = 1 << 30
	defaultTempTotal  = 8 << 30
)

// Transport asks one server after the other until one of them answers. It
// needs a selection policy of caddy-upstream (`upstream` or one of the static
// ones), and replaces Caddy's own retry settings.
type Transport struct {
	// When the next server is asked: `error`, `timeout`, `invalid_header`,
	// `http_500`, `http_502`, `http_503`, `http_504`, `http_403`, `http_404`,
	// `http_429`, and `non_idempotent` to repeat POST, LOCK and PATCH requests
	// that were already sent; or `off` alone. Default: `error` and `timeout`.
	Conditions []string `json:"conditions,omitempty"`

	// The number of servers asked for one request. Default: 0, all of them.
	Tries int `json:"tries,omitempty"`

	// The time after the first try during which another may start. Default: 0,
	// no limit.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// How long connecting to a server may take before the next one is connected
	// as well: the first to connect gets the request, and the slow connection goes
	// on in the background. Each further server is asked after the same time.
	// Tries and Timeout count those servers, too. It must be shorter than
	// connect_timeout, and works over `upstream_keepalive` only. Default: 0, off.
	ConnectHedge caddy.Duration `json:"connect_hedge,omitempty"`

	// Read the whole request body before a server is chosen, so that it can be
	// sent again: `on` (default) or `off`. Upgrades, gRPC, requests marked
	// `Incremental: ?1` and requests over HTTP/2 and 3 upstreams are never buffered.
	RequestBuffering string `json:"request_buffering,omitempty"`

	// The part of a buffered request body that is kept in memory; the rest goes
	// to a temporary file. Default: 16 KiB.
	RequestBufferSize int64 `json:"request_buffer_size,omitempty"`

	// The largest request body that is buffered. A larger one is passed on while
	// it arrives, and not sent again. Default: 1 GiB.
	RequestMaxTempFile int64 `json:"request_max_temp_file,omitempty"`

	// The total size of temporary files, over all requests of this process, above
	// which further bodies are passed on while they arrive. Default: 8 GiB.
	RequestMaxTempTotal int64 `json:"request_max_temp_total,omitempty"`

	// Give temporary files of request bodies a name, and keep them if wanted.
	// Default: they have none.
	RequestBodyFiles *BodyFiles `json:"request_body_files,omitempty"`

	// What happens to a request on a kept connection that the server had closed:
	// `retry` or `fail`. Default: what the group says.
	KeepaliveStale string `json:"keepalive_stale,omitempty"`

	// The transport that talks to the servers. Default: `upstream_keepalive`.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`

	wrap.Transport

	exchanger  exchange.Exchanger // nil over a transport that is not ours
	limits     limits             // of such a one
	policy     peer.NextPolicy
	staleFails bool
	buffers    bufferSettings
}

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.next_upstream",
		New: func() caddy.Module { return new(Transport) },
	}
}

const defaultTransport = `{"protocol":"upstream_keepalive"}`

// Provision loads the inner transport and takes over the handler's retries.
func (t *Transport) Provision(ctx caddy.Context) error {
	if err := t.settle(); err != nil {
		return err
	}
	if t.TransportRaw == nil {
		t.TransportRaw = json.RawMessage(defaultTransport)
	}
	mod, err := ctx.LoadModule(t, "TransportRaw")
	if err != nil {
		if absent := notInBuild(t.TransportRaw); absent != nil {
			err = absent
		}
		return fmt.Errorf("transport: %w", err)
	}
	inner, ok := mod.(http.RoundTripper)
	if !ok {
		return fmt.Errorf("transport %T is not a transport", mod)
	}
	if _, ok := inner.(*Transport); ok {
		return errNested
	}
	t.Inner = inner
	t.exchanger, _ = inner.(exchange.Exchanger)
	t.limits = limitsOf(inner)
	if _, err := t.Check(); err != nil {
		return err
	}
	t.buffers.off = t.RequestBuffering == "off" || multiplexed(inner)
	return t.takeOver(ctx)
}

const transports = "http.reverse_proxy.transport."

// notInBuild says whether the transport that raw names is missing in the build.
func notInBuild(raw json.RawMessage) error {
	var named struct{ Protocol string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return nil
	}
	return cfg.NotInBuild(transports + named.Protocol)
}

var errNested = errors.New("next_upstream cannot stand in next_upstream: expected another transport")

// Check finds options that would do nothing beside others, and names one of
// them. The inner transport must be known.
func (t *Transport) Check() (option string, err error) {
	sizes := []struct {
		name string
		size int64
	}{
		{"request_buffer_size", t.RequestBufferSize}, {"request_max_temp_file", t.RequestMaxTempFile},
		{"request_max_temp_total", t.RequestMaxTempTotal},
	}
	for _, s := range sizes {
		switch {
		case s.size == 0:
		case t.RequestBuffering == "off":
			return s.name, fmt.Errorf("%s does nothing beside request_buffering off", s.name)
		case multiplexed(t.Inner):
			return s.name, fmt.Errorf("%s does nothing over HTTP/2 and 3: request bodies are not buffered there", s.name)
		}
	}
	if b := t.RequestBodyFiles; b != nil {
		const option = "request_body_files"
		switch {
		case t.RequestBuffering == "off":
			return option, errors.New("request_body_files does nothing beside request_buffering off")
		case multiplexed(t.Inner):
			return option, errors.New("request_body_files does nothing over HTTP/2 and 3: request bodies are not buffered there")
		case b.Always && (t.RequestBufferSize != 0 || t.RequestMaxTempFile != 0 || t.RequestMaxTempTotal != 0):
			return option, errors.New("request_body_files always puts every body into a file, whole: sizes do nothing beside it")
		}
	}
	if t.RequestBuffering == "on" && multiplexed(t.Inner) {
		return "request_buffering", errors.New("request_buffering on does nothing over HTTP/2 and 3: request bodies are not buffered there")
	}
	if _, ours := t.Inner.(exchange.Exchanger); !ours && t.KeepaliveStale != "" {
		return "keepalive_stale", errors.New("keepalive_stale does nothing over this transport: it is for upstream_keepalive")
	}
	if why := closesEach(t.Inner); why != "" && t.KeepaliveStale != "" {
		return "keepalive_stale", fmt.Errorf("keepalive_stale does nothing beside %s: each request has its own connection", why)
	}
	if err := t.checkHedge(); err != nil {
		return "connect_hedge", err
	}
	return "", nil
}

// closesEach names the option by which connections of inner serve one request
// each; it is empty if there is none.
func closesEach(inner http.RoundTripper) string {
	if c, ok := inner.(interface{ ClosesEach() string }); ok {
		return c.ClosesEach()
	}
	return ""
}

// settle checks the options and fills in defaults.
func (t *Transport) settle() error {
	var err error
	t.policy.Conditions = peer.DefaultConditions
	if t.Conditions != nil {
		if t.policy.Conditions, err = peer.ParseConditions(t.Conditions); err != nil {
			return fmt.Errorf("conditions: %w", err)
		}
	}
	switch {
	case t.Tries < 0:
		return fmt.Errorf("tries %d: must not be negative", t.Tries)
	case t.Timeout < 0:
		return fmt.Errorf("timeout %s: must not be negative", time.Duration(t.Timeout))
	case t.ConnectHedge < 0:
		return fmt.Errorf("connect_hedge %s: must not be negative", time.Duration(t.ConnectHedge))
	case !slices.Contains([]string{"", "on", "off"}, t.RequestBuffering):
		return fmt.Errorf("request_buffering %q: expected on or off", t.RequestBuffering)
	case !slices.Contains([]string{"", "retry", "fail"}, t.KeepaliveStale):
		return fmt.Errorf("keepalive_stale %q: expected retry or fail", t.KeepaliveStale)
	case t.RequestBufferSize < 0:
		return fmt.Errorf("request_buffer_size %d: must not be negative", t.RequestBufferSize)
	case t.RequestMaxTempFile < 0:
		return fmt.Errorf("request_max_temp_file %d: must not be negative", t.RequestMaxTempFile)
	case t.RequestMaxTempTotal < 0:
		return fmt.Errorf("request_max_temp_total %d: must not be negative", t.RequestMaxTempTotal)
	}
	t.policy.Timeout = time.Duration(t.Timeout)
	t.buffers = bufferSettings{
		memory: orDefault(t.RequestBufferSize, defaultBufferSize),
		file:   orDefault(t.RequestMaxTempFile, defaultTempFile),
		total:  orDefault(t.RequestMaxTempTotal, defaultTempTotal),
	}
	if t.RequestBodyFiles != nil {
		if err := t.RequestBodyFiles.check(); err != nil {
			return err
		}
		t.RequestBodyFiles.limits(&t.buffers)
	}
	return nil
}

func orDefault(v, def int64) int64 {
	if v == 0 {
		return def
	}
	return v
}

// multiplexed reports whether inner may send several requests over one
// connection, so that there is no place to buffer for.
func multiplexed(inner http.RoundTripper) bool {
	h, ok := inner.(*reverseproxy.HTTPTransport)
	if !ok {
		return false
	}
	return slices.Contains(h.Versions, "h2c") || slices.Contains(h.Versions, "3") ||
		h.TLSEnabled() && slices.Contains(h.Versions, "2")
}

// takeOver makes Caddy's proxy loop ask again exactly when this transport says
// so. Nothing of it appears in the configuration.
func (t *Transport) takeOver(ctx caddy.Context) error {
	h := upstream.ParentHandler(ctx)
	if h == nil {
		return fmt.Errorf("next_upstream works in a reverse_proxy handler only")
	}
	if h.CBRaw != nil {
		return fmt.Errorf("circuit_breaker does nothing beside next_upstream: use max_fails and fail_timeout of the servers")
	}
	if h.HealthChecks != nil && h.HealthChecks.Passive != nil {
		return fmt.Errorf("passive health checks (fail_duration, max_fails, unhealthy_*) do nothing beside next_upstream: use max_fails and fail_timeout of the servers")
	}
	if h.RequestBuffers != 0 {
		return fmt.Errorf("request_buffers does nothing beside next_upstream: use request_buffering and request_buffer_size")
	}
	t.buffers.keep = slices.ContainsFunc(h.HandleResponse, func(r caddyhttp.ResponseHandler) bool { return len(r.Routes) > 0 })
	lb := h.LoadBalancing
	if lb == nil || !upstream.IsPolicy(lb.SelectionPolicyRaw) {
		return fmt.Errorf("next_upstream needs a selection policy of caddy-upstream: lb_policy upstream <group>, smooth_round_robin or another")
	}
	switch {
	case lb.Retries != 0:
		return fmt.Errorf("lb_retries does nothing beside next_upstream: use tries")
	case lb.TryDuration != 0:
		return fmt.Errorf("lb_try_duration does nothing beside next_upstream: use timeout")
	case lb.TryInterval != 0:
		return fmt.Errorf("lb_try_interval does nothing beside next_upstream: there is no wait between tries")
	case lb.RetryMatchRaw != nil:
		return fmt.Errorf("lb_retry_match does nothing beside next_upstream: use conditions")
	}
	lb.Retries = math.MaxInt
	lb.RetryMatchRaw = caddyhttp.RawMatcherSets{{"method": json.RawMessage(`[]`)}}
	return nil
}

// BindGroup implements upstream.Front.
func (t *Transport) BindGroup(b upstream.Binding) error {
	t.staleFails = b.StaleFails
	if t.KeepaliveStale != "" {
		t.staleFails = t.KeepaliveStale == "fail"
	}
	binder, ok := t.Inner.(exchange.Binder)
	if !ok {
		b.WarnKeepalive(upstream.TransportName(t.Inner))
		return nil
	}
	if err := binder.Bind(b.Store, b.Keepalive); err != nil {
		return err
	}
	if _, err := t.Check(); err != nil { // beside what the group says
		return err
	}
	if why := closesEach(t.Inner); why == "proxy_protocol" {
		b.WarnKeepalive(why)
	}
	return nil
}

// SessionTries implements upstream.Front.
func (t *Transport) SessionTries() int { return t.Tries }

// SetInner sets the inner transport while a Caddyfile is adapted.
func (t *Transport) SetInner(inner http.RoundTripper) { t.Inner = inner }

// defaultInner makes the default inner transport, so that what a Caddyfile says
// of schemes and TLS has a place to go.
func (t *Transport) defaultInner() error {
	if t.Inner != nil {
		return nil
	}
	const id = transports + "upstream_keepalive"
	info, err := caddy.GetModule(id)
	if err != nil {
		return cfg.NotInBuild(id)
	}
	t.Inner = info.New().(http.RoundTripper)
	return nil
}

// MarshalJSON writes an inner transport that was set up by a Caddyfile, as it
// is by now: scheme and TLS options reach it late.
func (t *Transport) MarshalJSON() ([]byte, error) {
	type plain Transport
	if t.Inner != nil {
		mod := t.Inner.(caddy.Module)
		raw := caddyconfig.JSONModuleObject(mod, "protocol", mod.CaddyModule().ID.Name(), nil)
		t.TransportRaw = nil
		if string(raw) != defaultTransport {
			t.TransportRaw = raw
		}
	}
	return json.Marshal((*plain)(t))
}

// Interface guards
var (
	_ caddy.Provisioner = (*Transport)(nil)
	_ upstream.Front    = (*Transport)(nil)
)
