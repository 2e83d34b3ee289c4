// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package command is `caddy upstream`: the runtime API of a running Caddy at the
// command line.
//
//	caddy upstream list [<group>]                           all servers
//	caddy upstream show <group> <server>                    one server, whole
//	caddy upstream add <group> <address> [<field>=<value>...]
//	caddy upstream set <group> <server> <field>=<value>...
//	caddy upstream drain <group> <server> [--deadline 30s]  set drain=true
//	caddy upstream enable <group> <server>                  set down=false drain=false
//	caddy upstream remove <group> <server> [--deadline 30s]
//	caddy upstream reset <group>                            counters
//
// --address names the admin endpoint, --json prints what the API answers,
// --watch draws the list again every second.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caddy-upstream/caddy-upstream/modules/upstream"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "upstream",
		Usage: "list|show|add|set|drain|enable|remove|reset [--address <admin>] [--json] [--watch]",
		Short: "Shows and changes the upstream groups of a running Caddy",
		Long: `
Shows and changes the servers of upstream groups through the admin API of a running
Caddy. Changes last until the configuration of the group changes; with state in the
group, over restarts too.

Fields of add and set are those of the configuration, as <field>=<value>:
weight=5 max_conns=100 max_fails=3 fail_timeout=30s backup=true down=true drain=true;
<field>= puts a field back to its default.`,
		CobraFunc: build,
	})
}

// client talks to one admin endpoint.
type client struct {
	address string
	json    bool
	out     io.Writer
	colour  bool
}

func build(cmd *cobra.Command) {
	var address string
	var asJSON bool
	cmd.PersistentFlags().StringVar(&address, "address", "", "the admin endpoint")
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print what the API answers")
	sub := func(use, short string, low, high int, run func(c *client, args []string) error) *cobra.Command {
		s := &cobra.Command{
			Use: use, Short: short, Args: cobra.RangeArgs(low, high),
			RunE: func(s *cobra.Command, args []string) error {
				s.SilenceUsage = true
				admin, err := caddycmd.DetermineAdminAPIAddress(address, nil, "", "")
				if err != nil {
					return err
				}
				out := s.OutOrStdout()
				return run(&client{address: admin, json: asJSON, out: out, colour: isTerminal(out)}, args)
			},
		}
		cmd.AddCommand(s)
		return s
	}
	const many = 1 << 10
	var watch bool
	list := sub("list [<group>]", "Lists servers and their state", 0, 1, func(c *client, args []string) error {
		if watch {
			return c.watch(args)
		}
		return c.list(args)
	})
	list.Flags().BoolVar(&watch, "watch", false, "draw the list again every second")
	sub("show <group> <server>", "Shows one server", 2, 2, (*client).show)
	sub("add <group> <address> [<field>=<value>...]", "Adds a server", 2, many, (*client).add)
	sub("set <group> <server> <field>=<value>...", "Changes a server", 3, many, (*client).set)
	var deadline string
	withDeadline := func(s *cobra.Command) {
		s.Flags().StringVar(&deadline, "deadline", "", "close what the server still has after this time, such as 30s")
	}
	withDeadline(sub("drain <group> <server> [--deadline <duration>]", "Sends no new traffic to a server", 2, 2, func(c *client, args []string) error {
		return c.change(append(args, "drain=true"), deadline)
	}))
	sub("enable <group> <server>", "Ends drain and down of a server", 2, 2, func(c *client, args []string) error {
		return c.set(append(args, "drain=", "down="))
	})
	withDeadline(sub("remove <group> <server> [--deadline <duration>]", "Removes a server", 2, 2, func(c *client, args []string) error {
		return c.remove(args, deadline)
	}))
	sub("reset <group>", "Sets a group's counters to zero", 1, 1, (*client).reset)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

// call makes a request and returns the body of the answer.
func (c *client) call(method, path string, body any) ([]byte, error) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(raw)
	}
	res, err := caddycmd.AdminAPIRequest(c.address, method, "/upstream/groups"+path, nil, r)
	if err != nil {
		return nil, sentence(err)
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// sentence takes the API's own words out of an error.
func sentence(err error) error {
	text := err.Error()
	if i := strings.Index(text, `{"error":`); i >= 0 {
		var answer struct{ Error string }
		if json.Unmarshal([]byte(text[i:]), &answer) == nil && answer.Error != "" {
			return errors.New(answer.Error)
		}
	}
	return err
}

func serverPath(group, id string) string {
	return "/" + url.PathEscape(group) + "/servers/" + url.PathEscape(id)
}

// within is the query of a deadline.
func within(deadline string) string {
	if deadline == "" {
		return ""
	}
	return "?drain_timeout=" + url.QueryEscape(deadline)
}

func (c *client) list(args []string) error {
	groups, raw, err := c.groups(args)
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.out.Write(raw)
		return err
	}
	return table(c.out, groups, c.colour)
}

// groups returns all groups, or the one that is named.
func (c *client) groups(args []string) ([]upstream.GroupState, []byte, error) {
	if len(args) == 1 {
		raw, err := c.call(http.MethodGet, "/"+url.PathEscape(args[0]), nil)
		if err != nil {
			return nil, nil, err
		}
		var g upstream.GroupState
		err = json.Unmarshal(raw, &g)
		return []upstream.GroupState{g}, raw, err
	}
	raw, err := c.call(http.MethodGet, "", nil)
	if err != nil {
		return nil, nil, err
	}
	var all struct{ Groups []upstream.GroupState }
	err = json.Unmarshal(raw, &all)
	return all.Groups, raw, err
}

// watch draws the list again every second until it is interrupted.
func (c *client) watch(args []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	defer signal.Stop(stop)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var b bytes.Buffer
		groups, _, err := c.groups(args)
		if err != nil {
			return err
		}
		if err := table(&b, groups, c.colour); err != nil {
			return err
		}
		if c.colour {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		fmt.Fprintf(c.out, "%s\n%s", time.Now().Format(time.TimeOnly), b.String())
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

func (c *client) show(args []string) error {
	raw, err := c.call(http.MethodGet, serverPath(args[0], args[1]), nil)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	_, err = b.WriteTo(c.out)
	return err
}

func (c *client) add(args []string) error {
	body, err := fields(args[2:])
	if err != nil {
		return err
	}
	body["address"] = args[1]
	raw, err := c.call(http.MethodPost, "/"+url.PathEscape(args[0])+"/servers", body)
	return c.answer(raw, err, "added %s to %s", args[1], args[0])
}

func (c *client) set(args []string) error { return c.change(args, "") }

// change is set; what the change takes out of service may finish within deadline.
func (c *client) change(args []string, deadline string) error {
	body, err := fields(args[2:])
	if err != nil {
		return err
	}
	raw, err := c.call(http.MethodPatch, serverPath(args[0], args[1])+within(deadline), body)
	return c.answer(raw, err, "changed %s of %s", args[1], args[0])
}

func (c *client) remove(args []string, deadline string) error {
	raw, err := c.call(http.MethodDelete, serverPath(args[0], args[1])+within(deadline), nil)
	return c.answer(raw, err, "removed %s from %s", args[1], args[0])
}

func (c *client) reset(args []string) error {
	raw, err := c.call(http.MethodPost, "/"+url.PathEscape(args[0])+"/reset", nil)
	return c.answer(raw, err, "reset the counters of %s", args[0])
}

func (c *client) answer(raw []byte, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	if c.json {
		_, err = c.out.Write(raw)
		return err
	}
	text := fmt.Sprintf(format, args...)
	var change struct{ Lasts string }
	if json.Unmarshal(raw, &change) == nil && change.Lasts != "" {
		text += "; this lasts " + change.Lasts
	}
	_, err = fmt.Fprintln(c.out, text)
	return err
}

// fields reads <field>=<value> arguments: numbers and true or false as such,
// all else as text; an empty value is the default.
func fields(args []string) (map[string]any, error) {
	out := map[string]any{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: expected <field>=<value>", arg)
		}
		switch n, err := strconv.Atoi(value); {
		case value == "":
			out[name] = nil
		case err == nil && name != "id" && name != "route":
			out[name] = n
		case value == "true" || value == "false":
			out[name] = value == "true"
		default:
			out[name] = value
		}
	}
	return out, nil
}
