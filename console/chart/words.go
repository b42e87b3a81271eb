package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Span is a duration in words, with two units at most: "120 ms", "62 s", "4 min 10 s", "2 h 30 min", "3 days".
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 100*time.Minute && d.Round(time.Second) != time.Hour:
		return units(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < 2*day:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	}
	return units(d.Round(time.Hour), day, "days", time.Hour, "h")
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// clock is a time of day, or a day and a time if that is not today.
func clock(t, today time.Time) string {
	t, today = t.UTC(), today.UTC()
	if t.Year() != today.Year() {
		return t.Format("2 Jan 2006 15:04 UTC")
	}
	if t.YearDay() != today.YearDay() {
		return t.Format("2 Jan 15:04 UTC")
	}
	return t.Format("15:04:05 UTC")
}

// short is a number with two significant digits at least, and a unit for large ones: 0.25, 3.5, 42, 1.2k, 3.4M.
func short(f float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(f) >= unit.size {
			return digits(f/unit.size) + unit.name
		}
	}
	return digits(f)
}

func digits(f float64) string {
	places := 0
	switch {
	case math.Abs(f) < 1:
		places = 2
	case math.Abs(f) < 10:
		places = 1
	}
	text := strconv.FormatFloat(f, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func attemptCount(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(n) + " attempts"
}
