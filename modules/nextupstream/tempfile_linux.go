// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import (
	"os"

	"golang.org/x/sys/unix"
)

// tempFile returns an open file without a name, readable by nobody else.
func tempFile() (*os.File, error) {
	fd, err := unix.Open(os.TempDir(), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return unlinkedTemp() // a file system without O_TMPFILE
	}
	return os.NewFile(uintptr(fd), "request body"), nil
}
