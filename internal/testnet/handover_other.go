// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testnet

import (
	"bytes"
	"fmt"
	"os/exec"
)

// handedOver reports that no more than one socket listens at each address with
// one of these TCP ports. The BSDs, macOS and Windows all have netstat.
func handedOver(ports []int) (bool, error) {
	out, err := exec.Command("netstat", "-an").Output()
	if err != nil {
		return false, fmt.Errorf("netstat -an: %w", err)
	}
	return netstatOnce(bytes.NewReader(out), ports)
}
