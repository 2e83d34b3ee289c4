// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package l4stream

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// serverName is one of the names that choose a server.
type serverName struct {
	text  string         // in lower case, without the star
	rank  int            // of its kind
	regex *regexp.Regexp // instead of a text
}

// The kinds of names in nginx's order; within a kind of wildcards the longer one
// goes first, of regular expressions the first.
const (
	noName = iota
	regexName
	wildcardEnd   // www.*
	wildcardStart // *.example.com, .example.com
	exactName
)

func parseServerName(text string) (serverName, error) {
	if text == "" {
		return serverName{}, nil // fits nobody: a client without SNI is not one with an empty name
	}
	if expr, ok := strings.CutPrefix(text, "~"); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return serverName{}, fmt.Errorf("server_name %q: %w", text, err)
		}
		return serverName{rank: regexName, regex: re}, nil
	}
	n := serverName{text: strings.ToLower(text), rank: exactName}
	switch {
	case strings.HasPrefix(n.text, "*."):
		n.text, n.rank = n.text[1:], wildcardStart
	case strings.HasPrefix(n.text, "."):
		n.rank = wildcardStart
	case strings.HasSuffix(n.text, ".*"):
		n.text, n.rank = n.text[:len(n.text)-1], wildcardEnd
	}
	if strings.Trim(n.text, ".") == "" || strings.Contains(n.text, "*") {
		return serverName{}, fmt.Errorf("server_name %q: expected a name, *.name, .name, name.* or ~expression", text)
	}
	return n, nil
}

// fits reports how well a client's name fits: a rank, and within it a length.
// bare: .name is its own name, too.
func (n *serverName) fits(name string, bare bool) (rank, length int) {
	switch {
	case name == "":
	case n.regex != nil && n.regex.MatchString(name),
		n.rank == wildcardEnd && strings.HasPrefix(name, n.text) && len(name) > len(n.text),
		n.rank == wildcardStart && strings.HasSuffix(name, n.text) && len(name) > len(n.text):
		return n.rank, len(n.text)
	case n.rank == exactName && name == n.text, bare && n.rank == wildcardStart && name == n.text[1:]:
		return exactName, len(n.text)
	}
	return noName, 0
}

func (s *Server) readNames() error {
	s.names = nil
	for _, text := range s.ServerName {
		n, err := parseServerName(text)
		if err != nil {
			return err
		}
		s.names = append(s.names, n)
	}
	if len(s.names) == 1 && s.ServerName[0] == "" {
		return errors.New(`server_name "": expected other names beside the empty one, which fits no client`)
	}
	return nil
}

// firstName is nginx's $server_name: the first name as it is written, without the
// dot of .name. It may be empty while others are not.
func (s *Server) firstName() string {
	if len(s.ServerName) == 0 {
		return ""
	}
	first := s.ServerName[0]
	if strings.HasPrefix(first, "~") {
		return first
	}
	return strings.ToLower(strings.TrimPrefix(first, "."))
}

// byName returns the server of the list whose name fits best, and else the
// first.
func (b *servers) byName(name string) *Server {
	best, rank, length := b.list[0], noName, 0
	for _, server := range b.list {
		for i, n := range server.names {
			bare := strings.HasPrefix(server.ServerName[i], ".")
			if r, l := n.fits(name, bare); r > rank || r == rank && r != regexName && l > length {
				best, rank, length = server, r, l
			}
		}
	}
	return best
}
