// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

import (
	"fmt"
	"os"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "nginx-upstream",
		Usage: "fmt <nginx.conf>",
		Short: "Prints an nginx.conf as a Caddyfile",
		Long: `
Prints the upstream blocks, the plain proxying, TLS, redirects and the stream block of
an nginx.conf as a Caddyfile, to go on from. What has no form in a Caddyfile is an
error; the adapter nginx-upstream runs more than that. Caddy's conventions hold for
X-Forwarded-*, letter case in paths, and redirects and errors, which have no pages.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(&cobra.Command{
				Use: "fmt <nginx.conf>", Short: "Prints a Caddyfile", Args: cobra.ExactArgs(1),
				RunE: func(c *cobra.Command, args []string) error {
					c.SilenceUsage = true
					body, err := os.ReadFile(args[0])
					if err != nil {
						return err
					}
					text, err := Caddyfile(body, args[0])
					if err != nil {
						return err
					}
					_, err = fmt.Fprint(c.OutOrStdout(), text)
					return err
				},
			})
		},
	})
}

// Caddyfile prints a configuration as a Caddyfile. The error lists, one a line,
// what has no form there.
func Caddyfile(body []byte, name string) (string, error) {
	dirs, comments, err := parse(body, name)
	if err != nil {
		return "", err
	}
	a := newAdapter(name)
	if err := a.options(comments, nil); err != nil {
		return "", err
	}
	if _, err := a.adapt(dirs); err != nil {
		return "", err
	}
	p := &printer{a: a}
	p.file()
	if len(p.errs) > 0 {
		return "", joinErrors(p.errs)
	}
	return p.b.String(), nil
}

// printer writes a Caddyfile.
type printer struct {
	a     *adapter
	b     strings.Builder
	depth int
	errs  []error
}

func (p *printer) line(format string, args ...any) {
	p.b.WriteString(strings.Repeat("\t", p.depth))
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

func (p *printer) block(head string, f func()) {
	p.line("%s {", head)
	p.depth++
	f()
	p.depth--
	p.line("}")
}

func (p *printer) cannot(d *dir, what string) {
	p.errs = append(p.errs, d.errorf("%s has no form in a Caddyfile here: use the adapter nginx-upstream", what))
}

func (p *printer) file() {
	p.block("", func() {
		if p.a.admin == "" {
			p.line("admin off")
		} else {
			p.line("admin %s", p.a.admin)
		}
		p.line("auto_https off")
		sockets, err := p.a.sockets()
		if err != nil {
			p.errs = append(p.errs, err)
		}
		for _, s := range sockets {
			p.socket(s)
		}
		for _, g := range p.a.resolving {
			p.group(g)
		}
		if p.a.streamScope != nil {
			p.stream()
		}
	})
	for _, v := range p.a.vhosts {
		p.b.WriteByte('\n')
		p.site(v)
	}
	out := strings.TrimPrefix(p.b.String(), " ")
	p.b.Reset()
	p.b.WriteString(out)
}
