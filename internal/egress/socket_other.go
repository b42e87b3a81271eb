//go:build !linux

package egress

import "net"

// alive cannot tell here: a dead connection shows itself when it is used.
func alive(*net.TCPConn) bool { return true }

// acknowledged is not known here.
func acknowledged(*net.TCPConn) uint64 { return 0 }
