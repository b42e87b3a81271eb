package retry

import (
	"strings"
	"time"
)

// FormatDuration returns d as a Go duration string without the units that are zero
// at its end: "12h" where String says "12h0m0s". time.ParseDuration reads it back.
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
