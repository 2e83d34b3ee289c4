// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nextupstream

import "os"

// unlinkedTemp returns a temporary file whose name is gone again. Where an open
// file cannot be removed, it stays until the system cleans its directory.
func unlinkedTemp() (*os.File, error) {
	f, err := os.CreateTemp("", "caddy-upstream-body-*")
	if err == nil {
		_ = os.Remove(f.Name())
	}
	return f, err
}
