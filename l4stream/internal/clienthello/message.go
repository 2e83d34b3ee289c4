// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package clienthello

// message reads the handshake message out of the payloads of records. It asks
// for one field after the other: as the bytes of a field are complete, the
// function for it looks at them and names the next.
type message struct {
	next  func(*message, []byte) Verdict // what to do with the field; nil: nothing read yet
	want  int                            // bytes of the field that are missing
	keep  bool                           // the field's bytes are looked at; else they are skipped
	field []byte                         // the field's bytes from earlier records
	left  int                            // bytes of the message after the field

	major, minor byte
	sawName      bool
	sawALPN      bool
	name         string
	alpn         []string
	ext          int // bytes left in the extension, after the field
	list         int // bytes left in the list of ALPN protocols
}

const (
	helloType = 1

	extServerName        = 0
	extALPN              = 16
	extSupportedVersions = 43
)

// feed takes the payload of one whole record.
func (m *message) feed(payload []byte) Verdict {
	if m.next == nil {
		m.want, m.keep, m.next = 4, true, (*message).header
	}
	for {
		n := min(m.want, len(payload))
		part := payload[:n]
		payload = payload[n:]
		m.want -= n
		if m.want > 0 {
			if m.keep {
				m.field = append(m.field, part...)
			}
			return NeedMore
		}
		if !m.keep {
			part = nil
		} else if len(m.field) > 0 {
			m.field = append(m.field, part...)
			part = m.field
			m.field = m.field[:0]
		}
		if v := m.next(m, part); v != NeedMore {
			return v
		}
	}
}

// read asks for a field of n bytes and skip passes over them. A field that
// would reach over the end of the message makes it malformed.
func (m *message) read(n int, then func(*message, []byte) Verdict) Verdict {
	m.keep = true
	return m.take(n, then)
}

func (m *message) skip(n int, then func(*message, []byte) Verdict) Verdict {
	m.keep = false
	return m.take(n, then)
}

func (m *message) take(n int, then func(*message, []byte) Verdict) Verdict {
	if n > m.left {
		return NotTLS
	}
	m.left -= n
	m.want, m.next = n, then
	return NeedMore
}

// readExt is read for a field inside of an extension.
func (m *message) readExt(n int, then func(*message, []byte) Verdict) Verdict {
	if n > m.ext {
		return NotTLS
	}
	m.ext -= n
	return m.read(n, then)
}

func (m *message) header(b []byte) Verdict {
	if b[0] != helloType {
		return NotTLS
	}
	m.left = int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	return m.read(2, (*message).version)
}

func (m *message) version(b []byte) Verdict {
	m.major, m.minor = b[0], b[1]
	const random = 32
	return m.skip(random, (*message).random)
}

func (m *message) random([]byte) Verdict { return m.read(1, (*message).sessionLen) }

func (m *message) sessionLen(b []byte) Verdict { return m.skip(int(b[0]), (*message).session) }

func (m *message) session([]byte) Verdict { return m.read(2, (*message).suitesLen) }

func (m *message) suitesLen(b []byte) Verdict { return m.skip(be16(b), (*message).suites) }

func (m *message) suites([]byte) Verdict { return m.read(1, (*message).methodsLen) }

func (m *message) methodsLen(b []byte) Verdict { return m.skip(int(b[0]), (*message).methods) }

func (m *message) methods([]byte) Verdict {
	if m.left == 0 {
		return Decided // a hello without extensions
	}
	return m.skip(2, (*message).extension) // their length: not looked at
}

// extension is called between two extensions.
func (m *message) extension([]byte) Verdict {
	if m.left == 0 {
		return Decided
	}
	return m.read(4, (*message).extHeader)
}

func (m *message) extHeader(b []byte) Verdict {
	m.ext = be16(b[2:])
	if m.ext > m.left {
		return NotTLS
	}
	switch typ := be16(b); {
	case typ == extServerName && !m.sawName:
		m.sawName = true
		return m.readExt(2, (*message).nameListLen)
	case typ == extALPN && !m.sawALPN:
		m.sawALPN = true
		return m.readExt(2, (*message).alpnListLen)
	case typ == extSupportedVersions:
		if m.ext == 0 {
			return NotTLS
		}
		m.major, m.minor = 3, 4
	}
	return m.endExt()
}

// endExt passes over what is left of the extension.
func (m *message) endExt() Verdict { return m.skip(m.ext, (*message).extension) }

func (m *message) nameListLen(b []byte) Verdict {
	m.list = be16(b)
	if m.list > m.ext {
		return NotTLS
	}
	return m.readExt(3, (*message).nameHeader)
}

func (m *message) nameHeader(b []byte) Verdict {
	n := be16(b[1:])
	if b[0] != 0 || 3+n > m.list {
		return NotTLS
	}
	return m.readExt(n, (*message).hostName)
}

func (m *message) hostName(b []byte) Verdict {
	m.name = string(b)
	return m.endExt()
}

func (m *message) alpnListLen(b []byte) Verdict {
	m.list = be16(b)
	if m.list > m.ext {
		return NotTLS
	}
	return m.readExt(1, (*message).alpnLen)
}

func (m *message) alpnLen(b []byte) Verdict {
	n := int(b[0])
	if n == 0 || 1+n > m.list {
		return NotTLS
	}
	m.list -= 1 + n
	return m.readExt(n, (*message).alpnName)
}

func (m *message) alpnName(b []byte) Verdict {
	m.alpn = append(m.alpn, string(b))
	if m.list > 0 {
		return m.readExt(1, (*message).alpnLen)
	}
	return m.endExt()
}

func (m *message) info() Info {
	return Info{ServerName: m.name, ALPN: m.alpn, Protocol: protocolName(m.major, m.minor)}
}

func be16(b []byte) int { return int(b[0])<<8 | int(b[1]) }
