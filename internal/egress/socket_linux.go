package egress

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// alive reports whether an idle connection may still be used: it is open and
// nothing has arrived on it. Bytes that nobody asked for (an early answer, a TLS
// alert that announces the end) make it unusable.
func alive(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, peeked = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && errors.Is(peeked, unix.EAGAIN)
}

// acknowledged returns how many bytes the peer's TCP has acknowledged on the
// connection so far (RFC 4898, tcpEStatsAppHCThruOctetsAcked), 0 if unknown.
func acknowledged(c *net.TCPConn) uint64 {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var acked uint64
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			acked = info.Bytes_acked
		}
	})
	if err != nil {
		return 0
	}
	return acked
}
