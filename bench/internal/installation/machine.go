package installation

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// Machine is what figures depend on besides the code. Unknown fields are empty.
type Machine struct {
	Cores      int     `json:"cores"`
	Processor  string  `json:"processor"`
	MemoryGiB  float64 `json:"memory_gib"`
	System     string  `json:"system"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`         // version that built the binary
	PostgreSQL string  `json:"postgresql"` // the version that the ceiling and the installation use
	Version    string  `json:"version"`    // version of the binary, from git
}

// Describe inspects the machine and the binary. It fails when the binary cannot be run.
func Describe(ctx context.Context, binary string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	said, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return m, fmt.Errorf("run %s version: %w; make build makes it", binary, err)
	}
	m.Version = strings.TrimPrefix(strings.TrimSpace(string(said)), "everpost ")
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return m, fmt.Errorf("read how %s was built: %w", binary, err)
	}
	m.Go = info.GoVersion
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.MemoryGiB = math.Round(kibibytes(string(text), "MemTotal:")/(1<<20)*10) / 10
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "model name\t: ")
		m.Processor, _, _ = strings.Cut(rest, "\n")
	}
	return m, nil
}

// String describes the machine in one line.
func (m Machine) String() string {
	var parts []string
	for _, p := range []struct{ format, value string }{
		{"everpost %s", m.Version}, {"%s", m.Go}, {"PostgreSQL %s", m.PostgreSQL},
		{"%s cores", strconv.Itoa(m.Cores)}, {"%s", m.Processor}, {"%s GiB", gib(m.MemoryGiB)}, {"%s", m.System}, {"kernel %s", m.Kernel},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf(p.format, p.value))
		}
	}
	return strings.Join(parts, ", ")
}

func gib(n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%g", n)
}

// SameHardware reports whether figures of both machines can be compared.
func (m Machine) SameHardware(other Machine) bool {
	return m.Cores == other.Cores && m.Processor == other.Processor && m.System == other.System
}
