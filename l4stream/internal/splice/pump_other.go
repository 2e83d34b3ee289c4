// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package splice

// pump moves until the source ends.
func (d *direction) pump() outcome { return d.copyAll() }
