package config

import (
	"fmt"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes.
type ByteSize int

// UnmarshalText parses a number of bytes, or of KiB or MiB with their unit, as "256KiB".
func (b *ByteSize) UnmarshalText(text []byte) error {
	number, unit := string(text), 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if count, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(count), bytes
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > 1<<30/unit {
		return fmt.Errorf("%q is not a number of bytes, nor a size such as 256KiB or 1MiB", text)
	}
	*b = ByteSize(n) * ByteSize(unit)
	return nil
}
