package query

import (
	"strings"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// likeID reports whether a text that begins like an id is meant as one.
func likeID(text string) bool {
	_, rest, _ := strings.Cut(text, "_")
	return len(rest) >= 8 && !strings.ContainsAny(rest, "_-.:/")
}

// ParseInstant reads a time: an age ("90s", "15m", "2h", "7d"), a day, or a time as in the API. A day begins at
// 00:00 UTC. ok is false for anything else.
func ParseInstant(text string, now time.Time) (at time.Time, ok bool) {
	if age, ok := webhook.ParseAge(text); ok && age > 0 {
		return now.Add(-age), true
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04Z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// nearName returns the filter that was probably meant by "stat:held"; "" for text that is no misspelt filter.
func nearName(text string) string {
	given, _, found := strings.Cut(text, ":")
	if !found || strings.Contains(text, "://") {
		return ""
	}
	given = strings.ToLower(given)
	for _, name := range names() {
		if len(given) >= 3 && strings.HasPrefix(name, given) || distance(given, name) == 1 {
			return name
		}
	}
	return ""
}

// distance is the number of letters that have to be inserted, removed or replaced (Levenshtein). It stops counting
// where the lengths alone tell that there are more than two.
func distance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, replaced)
		}
	}
	return row[len(b)]
}
