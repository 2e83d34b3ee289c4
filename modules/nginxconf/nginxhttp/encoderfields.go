// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxhttp

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of the fields of a logger only the request is of use in a line; it comes
// through AddObject. The others have no place there.

// AddArray implements zapcore.ObjectEncoder.
func (*Encoder) AddArray(string, zapcore.ArrayMarshaler) error { return nil }

// AddReflected implements zapcore.ObjectEncoder.
func (*Encoder) AddReflected(string, any) error { return nil }

// OpenNamespace implements zapcore.ObjectEncoder.
func (*Encoder) OpenNamespace(string) {}

// AddBinary implements zapcore.ObjectEncoder.
func (*Encoder) AddBinary(string, []byte) {}

// AddByteString implements zapcore.ObjectEncoder.
func (*Encoder) AddByteString(string, []byte) {}

// AddBool implements zapcore.ObjectEncoder.
func (*Encoder) AddBool(string, bool) {}

// AddComplex128 implements zapcore.ObjectEncoder.
func (*Encoder) AddComplex128(string, complex128) {}

// AddComplex64 implements zapcore.ObjectEncoder.
func (*Encoder) AddComplex64(string, complex64) {}

// AddDuration implements zapcore.ObjectEncoder.
func (e *Encoder) AddDuration(key string, v time.Duration) { e.add(zap.Duration(key, v)) }

// AddFloat64 implements zapcore.ObjectEncoder.
func (*Encoder) AddFloat64(string, float64) {}

// AddFloat32 implements zapcore.ObjectEncoder.
func (*Encoder) AddFloat32(string, float32) {}

// AddInt implements zapcore.ObjectEncoder.
func (e *Encoder) AddInt(key string, v int) { e.add(zap.Int(key, v)) }

// AddInt64 implements zapcore.ObjectEncoder.
func (e *Encoder) AddInt64(key string, v int64) { e.add(zap.Int64(key, v)) }

// AddInt32 implements zapcore.ObjectEncoder.
func (*Encoder) AddInt32(string, int32) {}

// AddInt16 implements zapcore.ObjectEncoder.
func (*Encoder) AddInt16(string, int16) {}

// AddInt8 implements zapcore.ObjectEncoder.
func (*Encoder) AddInt8(string, int8) {}

// AddString implements zapcore.ObjectEncoder.
func (e *Encoder) AddString(key, v string) { e.add(zap.String(key, v)) }

// AddTime implements zapcore.ObjectEncoder.
func (*Encoder) AddTime(string, time.Time) {}

// AddUint implements zapcore.ObjectEncoder.
func (*Encoder) AddUint(string, uint) {}

// AddUint64 implements zapcore.ObjectEncoder.
func (*Encoder) AddUint64(string, uint64) {}

// AddUint32 implements zapcore.ObjectEncoder.
func (*Encoder) AddUint32(string, uint32) {}

// AddUint16 implements zapcore.ObjectEncoder.
func (*Encoder) AddUint16(string, uint16) {}

// AddUint8 implements zapcore.ObjectEncoder.
func (*Encoder) AddUint8(string, uint8) {}

// AddUintptr implements zapcore.ObjectEncoder.
func (*Encoder) AddUintptr(string, uintptr) {}

// Interface guards
var (
	_ zapcore.Encoder   = (*Encoder)(nil)
	_ caddy.Provisioner = (*Encoder)(nil)
)
