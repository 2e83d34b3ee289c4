// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package splice

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
