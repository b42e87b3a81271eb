//go:build !failpoint

// Package failpoint names moments at which the fault harness kills the process. Without the build tag failpoint, with
// which only the harness builds, Hit does nothing and compiles to nothing.
package failpoint

// Hit is called when the process has come to the named point.
func Hit(string) {}
