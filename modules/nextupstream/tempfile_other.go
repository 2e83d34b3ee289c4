// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nextupstream

import "os"

func tempFile() (*os.File, error) { return unlinkedTemp() }
