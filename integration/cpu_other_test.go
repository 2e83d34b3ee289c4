// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package integration

import (
	"testing"
	"time"
)

// cpuTime is not known here.
func cpuTime(*testing.T, int) time.Duration { return 0 }
