//go:build !linux

package egress

import "net"

// acknowledged is not known here.
func acknowledged(*net.TCPConn) uint64 { return 0 }
