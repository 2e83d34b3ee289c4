// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package activehealth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/caddy-upstream/caddy-upstream/internal/cfg"
	"github.com/caddy-upstream/caddy-upstream/internal/clienttls"
	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() { caddy.RegisterModule(new(GRPC)) }

// GRPC asks a server's standard health service, grpc.health.v1.Health.
type GRPC struct {
	Settings

	// The name of the service that is asked for. Default: empty, the server as
	// a whole.
	Service string `json:"service,omitempty"`

	// Ask over TLS. The fields are those of Caddy's http transport. Default: ask
	// as the handlers of the group do, which must not differ then.
	TLS *clienttls.Settings `json:"tls,omitempty"`

	// Ask without TLS, whatever the handlers of the group do.
	TLSOff bool `json:"tls_off,omitempty"`

	manner
}

// CaddyModule returns the Caddy module information.
func (*GRPC) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "upstream.health_checks.grpc", New: func() caddy.Module { return new(GRPC) }}
}

// Provision checks the settings.
func (c *GRPC) Provision(ctx caddy.Context) (err error) {
	if err := c.settle(); err != nil {
		return err
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	return c.settleTLS(ctx, c.TLS, tlsIf(!c.TLSOff))
}

func (c *GRPC) checkTLS() error { return offOrOn(c.TLSOff, c.TLS) }

// Rules implements upstream.HealthCheck.
func (c *GRPC) Rules() upstream.CheckRules { return c.rules(strings.TrimSpace("grpc " + c.Service)) }

// Watch implements upstream.HealthCheck.
func (c *GRPC) Watch(judge upstream.Judge) upstream.Watcher {
	return watch("grpc", c, &c.Settings, c.client, judge)
}

// check implements checker.
func (c *GRPC) check(ctx context.Context, t target) error {
	client, err := grpc.NewClient("passthrough:///"+t.host(),
		grpc.WithTransportCredentials(c.credentials(t)),
		grpc.WithUserAgent(userAgent), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, t.Network, t.Address)
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: c.Service})
	if err != nil {
		switch s := status.Convert(err); s.Code() {
		case codes.DeadlineExceeded:
			return errors.New("timed out")
		case codes.Unimplemented:
			return errors.New("the server has no health service")
		case codes.NotFound:
			return fmt.Errorf("the server does not know the service %q", c.Service)
		default:
			return errors.New(s.Message())
		}
	}
	if answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the service is %s", answer.Status)
	}
	return nil
}

func (c *GRPC) credentials(t target) credentials.TransportCredentials {
	if !t.secure(c.client) {
		return insecure.NewCredentials()
	}
	config := c.client.For(t.Host, t.AddressHost)
	config.NextProtos = []string{"h2"}
	return credentials.NewTLS(config)
}

// UnmarshalCaddyfile reads `health_check grpc [service=] [<setting>=<value>...] [tls...]`.
func (c *GRPC) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	params := c.params()
	params["service"] = cfg.Param{Set: stringParam(&c.Service)}
	params["tls"] = cfg.Param{Flag: true, Set: func(string) error { needTLS(&c.TLS); return nil }}
	params["tls_off"] = cfg.Param{Flag: true, Set: flagParam(&c.TLSOff)}
	tlsParams(params, func() *clienttls.Settings { return needTLS(&c.TLS) })
	if err := params.Parse(d.RemainingArgs()); err != nil {
		return d.Errf("health_check grpc: %v", err)
	}
	check := *c
	for _, f := range []func() error{check.settle, check.checkTLS} {
		if err := f(); err != nil {
			return d.Errf("health_check grpc: %v", err)
		}
	}
	return noBlock(d, "grpc")
}

// Interface guards
var (
	_ upstream.TLSFollower  = (*GRPC)(nil)
	_ caddy.Provisioner     = (*GRPC)(nil)
	_ caddyfile.Unmarshaler = (*GRPC)(nil)
)
