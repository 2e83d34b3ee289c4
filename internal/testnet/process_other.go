// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testnet

import (
	"os/exec"
	"syscall"
)

func dieWithParent(*exec.Cmd, syscall.Signal) {}

// descriptors knows nothing outside Linux: checks of descriptors hold trivially.
func descriptors(int) ([]string, error) { return nil, nil }
