package webhook

import (
	"strconv"
	"time"
)

// maxAge is the greatest age.
const maxAge = 1000 * 7 * 24 * time.Hour

// ParseAge reads how long ago a time is: a whole number of s, m, h, d or w ("90s", "15m", "2h", "7d"), or a duration as Go writes
// it ("1h30m") without a sign, up to 1,000 weeks. ok is false for anything else. TimeOrAge in openapi.yaml is the same, but for the bound.
func ParseAge(text string) (age time.Duration, ok bool) {
	if text == "" || text[0] == '+' || text[0] == '-' {
		return 0, false
	}
	unit := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	if unit == 0 {
		age, err := time.ParseDuration(text)
		return age, err == nil && age >= 0 && age <= maxAge
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 31)
	if err != nil || time.Duration(n) > maxAge/unit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
