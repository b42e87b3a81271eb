//go:build !linux

package app

import "os"

// machine identifies this machine; "" if its name is not known.
func machine() string {
	name, _ := os.Hostname()
	return name
}
