package egress

import (
	"net"

	"golang.org/x/sys/unix"
)

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
