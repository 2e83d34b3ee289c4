// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module    = "github.com/caddy-upstream/caddy-upstream"
	l4Version = "v0.1.2"
)

// examplesCaddy is the Caddy of peers ours and stock: the same binary, so that
// the compiler and the versions of everything else are the same.
func examplesCaddy(ctx context.Context, b *bench) (string, error) {
	if b.caddy != "" {
		return filepath.Abs(b.caddy)
	}
	out := filepath.Join(b.dir, "caddy")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	return out, goTool(ctx, "build", "-o", out, module+"/examples/caddy")
}

// l4Caddy is a Caddy with caddy-l4, built once for each version of either.
func l4Caddy(ctx context.Context, b *bench) (string, error) {
	if b.l4 != "" {
		return filepath.Abs(b.l4)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2").Output()
	if err != nil {
		return "", fmt.Errorf("finding Caddy's version: %w", err)
	}
	caddy := strings.TrimSpace(string(version))
	out := filepath.Join(cache, "caddy-upstream-bench", "caddy-"+caddy+"-l4-"+l4Version)
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	return out, goTool(ctx, "tool", "xcaddy", "build", caddy, "--with", "github.com/mholt/caddy-l4@"+l4Version, "--output", out)
}

func goTool(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
