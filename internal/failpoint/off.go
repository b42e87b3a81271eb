//go:build !failpoint

// Package failpoint names moments at which the fault harness kills the process, and gives the process a wrong clock. Without the
// build tag failpoint, with which only the harness builds, Hit does nothing and compiles to nothing, and the clock is right.
package failpoint

import (
	"io"
	"time"
)

// Hit is called when the process has come to the named point.
func Hit(string) {}

// HitWhenRead is Hit when so many bytes of r have been read.
func HitWhenRead(_ string, _ int, r io.Reader) io.Reader { return r }

// Clock returns the process's clock.
func Clock() func() time.Time { return time.Now }
