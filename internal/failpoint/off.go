//go:build !failpoint

// Package failpoint names moments at which the fault harness kills the process, and gives the process a wrong clock. Without the
// build tag failpoint, with which only the harness builds, Hit does nothing and compiles to nothing, and the clock is right.
package failpoint

import "time"

// Hit is called when the process has come to the named point.
func Hit(string) {}

// Clock returns the process's clock.
func Clock() func() time.Time { return time.Now }
