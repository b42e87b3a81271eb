package explain

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const day = 24 * time.Hour

// at formats a time in UTC: with seconds if it is today, else with the day. Without a now it has both.
func at(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	switch {
	case now.IsZero():
		return t.Format("2 Jan 2006 15:04:05 UTC")
	case t.Year() != now.Year():
		return t.Format("2 Jan 2006 15:04 UTC")
	case t.YearDay() != now.YearDay():
		return t.Format("2 Jan 15:04 UTC")
	}
	return t.Format("15:04:05 UTC")
}

// At formats a time in UTC, with its date and seconds.
func At(t time.Time) string { return at(t, time.Time{}) }

// when formats a time in UTC and, unless there is no now, how far away it is: "12:05:10 UTC, in 62 s".
func when(t, now time.Time) string {
	if now.IsZero() {
		return at(t, now)
	}
	return at(t, now) + ", " + Relative(t, now)
}

// Relative is how far a time is from now, in one unit: "in 62 s", "10 min ago". What is to come is rounded up and what is past down, so that
// neither is sooner, or longer ago, than it says.
func Relative(t, now time.Time) string {
	if t.After(now) {
		return "in " + timeUntil(t.Sub(now))
	}
	return elapsed(now.Sub(t)) + " ago"
}

// Lasting is for how long something has lasted at a time, by the rule of Relative.
func Lasting(since, now time.Time) string { return elapsed(now.Sub(since)) }

// clock formats a past time without seconds.
func clock(t, now time.Time) string {
	return strings.Replace(at(t, now), t.UTC().Format(":05 UTC"), " UTC", 1)
}

// timeUntil formats a duration until something, rounded up: 21 s, 4 min, 3 h, 2 days.
func timeUntil(d time.Duration) string {
	return inUnit(d, func(unit time.Duration) int64 { return int64((d + unit - 1) / unit) })
}

// elapsed formats a duration since something, rounded down.
func elapsed(d time.Duration) string {
	return inUnit(d, func(unit time.Duration) int64 { return int64(max(d, 0) / unit) })
}

func inUnit(d time.Duration, count func(unit time.Duration) int64) string {
	switch {
	case d < 100*time.Second && count(time.Second) < 100:
		return fmt.Sprintf("%d s", count(time.Second))
	case d < 100*time.Minute && count(time.Minute) < 100:
		return fmt.Sprintf("%d min", count(time.Minute))
	case d < 2*day && count(time.Hour) < 48:
		return fmt.Sprintf("%d h", count(time.Hour))
	}
	return fmt.Sprintf("%d days", count(day))
}

func latency(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return short(d.Seconds()) + " s"
}

// PerSecond formats a rate in requests, per minute if it is below 0.1 per second.
func PerSecond(rate float64) string {
	unit := "second"
	if rate > 0 && rate < 0.1 {
		rate, unit = rate*60, "minute"
	}
	number := short(rate)
	if number == "1" {
		return "1 request per " + unit
	}
	return number + " requests per " + unit
}

// short formats a number, with one decimal below ten unless that is zero.
func short(f float64) string {
	if f >= 10 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// percent formats a ratio to a tenth of a percent; only 0 and 1 give "0 %" and "100 %".
func percent(ratio float64) string {
	tenths := math.Round(ratio * 1000)
	if ratio > 0 && ratio < 1 {
		tenths = min(max(tenths, 1), 999)
	}
	return strings.TrimSuffix(strconv.FormatFloat(tenths/10, 'f', 1, 64), ".0") + " %"
}

// atLeast formats a count that may be incomplete.
func atLeast(n int, more bool) string {
	if more {
		return "more than " + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

func count(n int, noun string) string { return strconv.Itoa(n) + " " + Plural(int64(n), noun) }

// Plural is the form of a noun that goes with a number: "1 delivery", "2 deliveries". Its last word is the one that changes.
func Plural(n int64, noun string) string {
	switch stem, ies := strings.CutSuffix(noun, "y"); {
	case n == 1:
		return noun
	case ies:
		return stem + "ies"
	}
	return noun + "s"
}

// sentence makes a sentence of clauses: the empty ones are left out, the first begins with a
// capital letter, and a full stop ends it.
func sentence(clauses ...string) string {
	var kept []string
	for _, clause := range clauses {
		if clause != "" {
			kept = append(kept, strings.TrimRight(clause, ". "))
		}
	}
	text := strings.Join(kept, "; ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// maxForeign bounds text of a person, a receiver or a fault in a sentence, in bytes.
const maxForeign = 300

// foreign makes text that others wrote fit for a sentence: bounded, in one line, and without the
// user, query and fragment of a URL, which may hold credentials.
func foreign(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if start := strings.Index(word, "://"); start >= 0 {
			words[i] = redactURL(word, start+len("://"))
		}
	}
	text = strings.Join(words, " ")
	if len(text) > maxForeign {
		text = strings.ToValidUTF8(text[:maxForeign], "") + "…"
	}
	return text
}

// redactURL keeps the scheme, host and path of a URL whose host begins at the index.
func redactURL(word string, host int) string {
	if end := strings.IndexAny(word[host:], "?#"); end >= 0 {
		word = word[:host+end]
	}
	authority, path, _ := strings.Cut(word[host:], "/")
	if user := strings.LastIndex(authority, "@"); user >= 0 {
		authority = authority[user+1:]
	}
	if path != "" {
		path = "/" + path
	}
	return word[:host] + authority + path
}

// hostOf is the host name of an endpoint; "" if that is not known.
func hostOf(e *webhook.Endpoint) string {
	if e == nil {
		return ""
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// receiverOf names the receiver by its host.
func receiverOf(e *webhook.Endpoint) string {
	if host := hostOf(e); host != "" {
		return "the receiver at " + host
	}
	return "the receiver"
}
