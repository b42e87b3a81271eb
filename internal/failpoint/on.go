//go:build failpoint

// Package failpoint names moments at which the fault harness kills the process, and gives the process a wrong clock.
package failpoint

import (
	"io"
	"os"
	"syscall"
	"time"
)

// Hit kills the process, as kill -9 does, if the file that EVERPOST_FAILPOINT names contains the point's name. The
// file is removed first, so that only one of several processes dies.
func Hit(name string) {
	file := os.Getenv("EVERPOST_FAILPOINT")
	armed, err := os.ReadFile(file)
	if err != nil || string(armed) != name || os.Remove(file) != nil {
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}

// HitWhenRead is Hit when so many bytes of r have been read, and some are left. A reader that says that it has no more stays as it is.
func HitWhenRead(name string, bytes int, r io.Reader) io.Reader {
	if l, ok := r.(interface{ Len() int }); ok && l.Len() <= bytes {
		return r
	}
	return &reader{r, name, bytes}
}

type reader struct {
	io.Reader

	name string
	left int
}

func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		Hit(r.name)
	}
	n, err := r.Reader.Read(p)
	r.left -= n
	return n, err
}

// Clock returns the process's clock. It is wrong by the duration in EVERPOST_FAILPOINT_CLOCK.
func Clock() func() time.Time {
	by, err := time.ParseDuration(os.Getenv("EVERPOST_FAILPOINT_CLOCK"))
	if err != nil {
		return time.Now
	}
	return func() time.Time { return time.Now().Add(by) }
}
