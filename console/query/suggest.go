package query

import (
	"strings"

	"github.com/everpost/everpost/internal/retry"
)

// MaxSuggestions bounds what Suggest returns.
const MaxSuggestions = 12

// Vocabulary is what an installation has that a search may name.
type Vocabulary struct {
	Tenants []string
	Types   []string // event types
	Hosts   []string // of endpoints
}

// Suggest completes the last term of a search. Each suggestion is the whole search with another last term. A
// complete term is suggested too, so that a list shows what it is about; nothing is suggested after a quote.
func Suggest(text string, v Vocabulary) []string {
	if len(text) > MaxLength {
		return []string{}
	}
	last, before := term{}, text
	if terms := split(text); len(terms) > 0 && !isSpace(rune(text[len(text)-1])) {
		last = terms[len(terms)-1]
		before = text[:last.from]
	}
	if last.quoted {
		return []string{}
	}
	given := strings.ToLower(last.value)
	suggested := make([]string, 0, MaxSuggestions)
	add := func(candidates []string, prefix string) {
		for _, c := range candidates {
			if len(suggested) < MaxSuggestions && strings.HasPrefix(strings.ToLower(c), given) {
				suggested = append(suggested, before+prefix+quote(c))
			}
		}
	}
	if last.name != "" {
		add(values(last.name, v), last.name+":")
		return suggested
	}
	add(states(), "state:")
	for _, name := range names() {
		if len(suggested) < MaxSuggestions && strings.HasPrefix(name, given) {
			suggested = append(suggested, before+name+":")
		}
	}
	if given != "" {
		add(v.Types, "type:")
		add(v.Hosts, "url:")
		add(reasons(), "reason:")
	}
	return suggested
}

// values are what a filter takes, as far as that can be listed.
func values(name string, v Vocabulary) []string {
	switch name {
	case "state":
		return states()
	case "type":
		return v.Types
	case "url":
		return v.Hosts
	case "tenant":
		return v.Tenants
	case "reason":
		return reasons()
	case "since", "until":
		return []string{"15m", "1h", "2h", "24h", "7d"}
	case "status":
		return []string{"400", "401", "403", "404", "410", "429", "500", "502", "503", "504"}
	}
	return nil
}

// reasons are those that a dead letter can have.
func reasons() []string {
	var all []string
	for _, r := range retry.Reasons() {
		if r != retry.ReasonDelivered {
			all = append(all, string(r))
		}
	}
	return all
}

// quote quotes a value that would otherwise be more than one term.
func quote(value string) string {
	if strings.ContainsFunc(value, isSpace) {
		return `"` + value + `"`
	}
	return value
}
