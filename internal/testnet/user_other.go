// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package testnet

import (
	"syscall"
	"testing"
)

func unprivileged(testing.TB, string) *syscall.SysProcAttr { return nil }
