// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package hash

import (
	"hash/crc32"
	"slices"
	"strings"
)

// pointsPerWeight is how many points a server has for each unit of weight.
const pointsPerWeight = 160

// maxPoints bounds a ring, and with it the time and memory to build one:
// 13,000 servers of weight 1 keep all their points. Beyond it the points of all
// servers are cut by the same power of two, at least one each.
const maxPoints = 1 << 21

// points appends the first n points of a server string: a chain of CRC-32 sums
// over host, a zero byte, port and the point before.
func points(to []uint32, line string, n int) []uint32 {
	host, port := split(line)
	base := crc32.ChecksumIEEE(bytesOf(host))
	base = crc32.Update(base, crc32.IEEETable, []byte{0})
	base = crc32.Update(base, crc32.IEEETable, bytesOf(port))
	to = slices.Grow(to, n)
	var point uint32
	for range n {
		point = next(base, point)
		to = append(to, point)
	}
	return to
}

// next appends the four bytes of prev, the lowest first, to what crc has
// summed. A loop over four bytes is cheaper here than a call of the package's.
func next(crc, prev uint32) uint32 {
	crc = ^crc
	for range 4 {
		crc = crc32.IEEETable[byte(crc)^byte(prev)] ^ crc>>8
		prev >>= 8
	}
	return ^crc
}

// split cuts a server string, as written in the configuration, into host and
// port.
func split(line string) (host, port string) {
	if len(line) >= 5 && strings.EqualFold(line[:5], "unix:") {
		return line[5:], ""
	}
	i := strings.LastIndexByte(line, ':')
	if i < 0 || i == len(line)-1 || strings.Trim(line[i+1:], "0123456789") != "" {
		return line, ""
	}
	return line[:i], line[i+1:]
}
