//go:build !unix

package egress

import (
	"net"
	"time"
)

// readNow reads what has arrived; the error is errNothing when nothing has.
func readNow(c *net.TCPConn, p []byte) (int, error) { return readWithin(c, p, time.Millisecond) }
