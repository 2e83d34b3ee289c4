// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// places are where Debian keeps programs that are not on everybody's PATH.
var places = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/lib/postgresql/*/bin"}

// Need is the path of a program that the test cannot do without. Without it
// the test is skipped, and fails when CI=true.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, ok := Find(program)
	if !ok {
		Missing(t, program+" is not installed")
	}
	return path
}

// Find is the path of a program, looked for on PATH and in Debian's places;
// of several versions the last.
func Find(program string) (path string, ok bool) {
	if p, err := exec.LookPath(program); err == nil {
		return p, true
	}
	for _, dir := range places {
		found, _ := filepath.Glob(filepath.Join(dir, program))
		if len(found) > 0 {
			return slices.Max(found), true
		}
	}
	return "", false
}

// Missing ends a test for which something is not there on this machine: it is
// skipped, and fails when CI=true.
func Missing(t testing.TB, what string) {
	t.Helper()
	if inCI() {
		t.Fatalf("%s, and CI=true allows no skip", what)
	}
	t.Skip(what)
}

func inCI() bool { return os.Getenv("CI") == "true" }
