// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"runtime"
	"testing"
)

// verdict is a testing.TB that remembers how it was ended instead of ending.
type verdict struct {
	testing.TB
	how string
}

func (v *verdict) Skip(...any)           { v.how = "skip"; runtime.Goexit() }
func (v *verdict) Fatal(...any)          { v.how = "fatal"; runtime.Goexit() }
func (v *verdict) Fatalf(string, ...any) { v.how = "fatal"; runtime.Goexit() }
func (v *verdict) Errorf(string, ...any) { v.how = "error" }
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Helper()               {}
