// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The lists of handlers are printed as their first address, which another list may
// have, too, and even a group. In the API and in metrics each has a name of its
// own: the second and later ones have a number behind it, which stays while the list
// is in use, and so does the first beside a group of its name. No group's name has
// the character between.

// listNumbers are the numbers in use, by name.
var listNumbers = struct {
	sync.Mutex
	used map[string]map[int]bool
}{used: map[string]map[int]bool{}}

// takeNumber returns the lowest free number for a list of that name, from 1.
func takeNumber(name string) int {
	listNumbers.Lock()
	defer listNumbers.Unlock()
	used := listNumbers.used[name]
	if used == nil {
		used = map[int]bool{}
		listNumbers.used[name] = used
	}
	n := 1
	for used[n] {
		n++
	}
	used[n] = true
	return n
}

func giveNumber(name string, n int) {
	listNumbers.Lock()
	defer listNumbers.Unlock()
	if delete(listNumbers.used[name], n); len(listNumbers.used[name]) == 0 {
		delete(listNumbers.used, name)
	}
}

func suffix(n int) string { return "#" + strconv.Itoa(n) }

// entry is a group in use, with its name in the API.
type entry struct {
	*Runtime
	id string
}

// allRuntimes are the groups in use, by name; named ones before lists of the same
// name.
func allRuntimes() []entry {
	var out []entry
	named := map[string]bool{}
	runtimes.Range(func(_, v any) bool {
		r := v.(*Runtime)
		out = append(out, entry{r, r.key.name})
		if r.number == 0 {
			named[r.key.name] = true
		}
		return true
	})
	for i, r := range out {
		if r.number > 1 || r.number == 1 && named[r.key.name] {
			out[i].id += suffix(r.number)
		}
	}
	slices.SortFunc(out, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.key.name, b.key.name), a.number-b.number)
	})
	return out
}

// runtimeByName returns a group by its name in the API; nil: it is not in use.
func runtimeByName(id string) *entry {
	for _, r := range allRuntimes() {
		if r.id == id {
			return &r
		}
	}
	return nil
}
