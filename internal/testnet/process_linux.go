// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel signal the child when we end, however we do.
func dieWithParent(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = sig
}

// descriptors lists what the process holds open.
func descriptors(pid int) ([]string, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	open := make([]string, 0, len(entries))
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		open = append(open, e.Name()+" "+target)
	}
	return open, nil
}
