//go:build unix

package egress

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// readNow reads what has arrived without waiting. The error is errNothing when nothing has
// arrived.
func readNow(c *net.TCPConn, p []byte) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err //nolint:wrapcheck // means that the connection is closed
	}
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), p)
		return true
	})
	switch {
	case err != nil:
		return 0, err //nolint:wrapcheck // as above, or its deadline has passed
	case errors.Is(failed, unix.EAGAIN):
		return 0, errNothing
	case failed != nil:
		return 0, fmt.Errorf("read: %w", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
