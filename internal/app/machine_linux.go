package app

import (
	"os"
	"strings"
)

// machine identifies the network to which the loopback addresses of this process belong: the machine since its last start, and the network
// namespace, which a container has of its own. "" if that is not known.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/net") // "net:[4026531840]"
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}
