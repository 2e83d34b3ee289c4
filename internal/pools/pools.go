// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package pools keeps track of the pools of state that outlives configurations.
// A reference that a configuration takes and never gives back keeps its state
// for good, and one given back twice takes the state from another; so tests of
// any package can ask here whether anything is left when all configurations
// are gone.
package pools

import (
	"fmt"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

var (
	mu  sync.Mutex // guards all
	all = map[string]*caddy.UsagePool{}
)

// New makes a pool. The name, of what is in it, is for Held.
func New(name string) *caddy.UsagePool {
	mu.Lock()
	defer mu.Unlock()
	if all[name] != nil {
		panic("pools: two pools of " + name)
	}
	all[name] = caddy.NewUsagePool()
	return all[name]
}

// Held lists what is in the pools, with the number of references to it.
func Held() []string {
	mu.Lock()
	defer mu.Unlock()
	var held []string
	for name, pool := range all {
		var keys []any
		pool.Range(func(key, _ any) bool {
			keys = append(keys, key)
			return true
		})
		for _, key := range keys {
			if n, ok := pool.References(key); ok {
				held = append(held, fmt.Sprintf("%s %v: %d references", name, key, n))
			}
		}
	}
	slices.Sort(held)
	return held
}
