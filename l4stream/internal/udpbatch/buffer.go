// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package udpbatch

import "sync"

// Buffer holds a copy of a datagram.
type Buffer struct {
	data  []byte
	class int
}

// classes are the sizes of buffers: small questions, one Ethernet frame, a
// jumbo frame, anything.
var (
	classes = [...]int{256, 2048, 9216, MaxDatagram}
	pools   [len(classes)]sync.Pool
)

// Keep copies a datagram into a buffer of the smallest size that fits. Release
// gives it back.
func Keep(data []byte) *Buffer {
	class := 0
	for class < len(classes)-1 && len(data) > classes[class] {
		class++
	}
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{data: make([]byte, 0, classes[class]), class: class}
	}
	b.data = append(b.data[:0], data...)
	return b
}

// Bytes returns the datagram. It is valid until Release.
func (b *Buffer) Bytes() []byte { return b.data }

// Release gives the buffer back; it must not be used any more.
func (b *Buffer) Release() { pools[b.class].Put(b) }
