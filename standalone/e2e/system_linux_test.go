package e2e_test

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
)

// serversOf are the process ids of the PostgreSQL servers that run on a directory
// or below it, by their command lines, and whether that can be known here.
func serversOf(dir string) (ids []int, known bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
		onDir := func(arg string) bool { return strings.HasPrefix(strings.TrimPrefix(arg, "-D"), dir) }
		if strings.Contains(args[0], "postgres") && slices.ContainsFunc(args, onDir) {
			ids = append(ids, id)
		}
	}
	// A process that a server has just forked for a client still has the server's own
	// command line. It is no server: its parent is one. Nor is one that has ended since.
	noServer := func(id int) bool {
		parent := parentOf(id)
		return parent == 0 || slices.Contains(ids, parent)
	}
	return slices.DeleteFunc(slices.Clone(ids), noServer), true
}

// parentOf is the parent of a process, 0 when it has ended.
func parentOf(id int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	line, _, _ := strings.Cut(rest, "\n")
	parent, _ := strconv.Atoi(strings.TrimSpace(line))
	return parent
}
