// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// handedOver reports that no more than one socket listens at each address with
// one of these TCP ports.
func handedOver(ports []int) (bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, port := range ports {
			once, err := listensOnce(fd, family, uint16(port))
			if !once || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// diagRequest asks for the listening TCP sockets with a port: struct
// inet_diag_req_v2 of sock_diag(7). The kernel answers for one port at once;
// /proc/net/tcp has all sockets, in pieces, and one may be missing when others go
// meanwhile.
type diagRequest struct {
	Family, Protocol, Extensions, _ uint8
	States                          uint32
	Port                            [2]byte // in network order
	_                               [2]byte
	_, _                            [16]byte // addresses
	_                               uint32   // interface
	Cookie                          [8]byte
}

// diagAnswer is the beginning of struct inet_diag_msg.
type diagAnswer struct {
	_, _, _, _  uint8
	Port        [2]byte
	_           [2]byte
	Source, Far [16]byte
	Interface   uint32
}

const tcpListen = 10 // TCP_LISTEN of the kernel's tcp_states.h

func listensOnce(fd int, family uint8, port uint16) (bool, error) {
	var b bytes.Buffer
	request := diagRequest{Family: family, Protocol: unix.IPPROTO_TCP, States: 1 << tcpListen}
	binary.BigEndian.PutUint16(request.Port[:], port)
	header := unix.NlMsghdr{
		Len:  uint32(unix.SizeofNlMsghdr + binary.Size(request)),
		Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP,
	}
	_ = binary.Write(&b, binary.NativeEndian, header) // a bytes.Buffer takes all
	_ = binary.Write(&b, binary.NativeEndian, request)
	if err := unix.Sendto(fd, b.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, os.NewSyscallError("sendto", err)
	}
	seen := map[[16]byte]bool{}
	once := true
	for buf := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return false, os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return false, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return once, nil
			case unix.NLMSG_ERROR:
				return false, fmt.Errorf("sock_diag: error %d", -int32(binary.NativeEndian.Uint32(m.Data)))
			}
			var a diagAnswer
			if err := binary.Read(bytes.NewReader(m.Data), binary.NativeEndian, &a); err != nil {
				return false, err
			}
			once = once && !seen[a.Source]
			seen[a.Source] = true
		}
	}
}
