package retry

import (
	"strings"
	"time"
)

// FormatDuration returns d as a Go duration string without trailing units that are zero:
// "12h" instead of String's "12h0m0s". time.ParseDuration parses it.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if short, found := strings.CutSuffix(text, "m0s"); found {
		text = short + "m"
	}
	if short, found := strings.CutSuffix(text, "h0m"); found {
		text = short + "h"
	}

	return text
}
