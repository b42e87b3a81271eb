package explain

import (
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// Sentences of notifications: see docs/notifications.md.

// Failing says what makes an endpoint one that fails: of the first attempts within ten minutes so many failed, or its circuit is open since then.
func Failing(first, failed int, open, now time.Time) string {
	if !open.IsZero() {
		return sentence("the circuit of the endpoint has been open for " + elapsed(now.Sub(open)))
	}
	return sentence(fmt.Sprintf("within 10 min, %d of %s failed", failed, count(first, "first attempt")))
}

// DisablingSoon says how near an endpoint is to being disabled automatically.
func DisablingSoon(streak, exhausted int, rule webhook.AutoDisable) string {
	if streak > 0 && 2*streak >= rule.PermanentStreak {
		return sentence(fmt.Sprintf("%s in a row %s refused permanently; after %d the endpoint is disabled",
			count(streak, "request"), were(streak), rule.PermanentStreak))
	}
	return sentence(fmt.Sprintf("%s %s given up within 24 hours and none was delivered; after %d the endpoint is disabled",
		count(exhausted, "delivery"), were(exhausted), rule.Exhausted24h))
}

// BacklogExpiring says when held deliveries are given up: of an endpoint that is paused or disabled, or of one that takes too few.
func BacklogExpiring(stopped bool, first, now time.Time) string {
	if !stopped {
		return sentence("the endpoint takes its deliveries more slowly than they come: held ones are given up from "+at(first, now)+" on",
			"allow more requests (rate_limit_per_second, max_in_flight), or have the receiver answer faster")
	}
	return sentence("the endpoint's held deliveries are given up from "+at(first, now)+" on", "resume it before that")
}

// DeliversAgain says that an endpoint takes deliveries again.
func DeliversAgain() string { return sentence("the endpoint takes deliveries again") }

// DeadLettersOfDay says how many deliveries became dead letters within a day; more: these or more.
func DeadLettersOfDay(n, endpoints int, more bool) string {
	if endpoints == 0 {
		return sentence(fmt.Sprintf("%s %s given up within 24 hours", count(n, "delivery"), were(n)), "dead letters can be sent again")
	}
	words := count(n, "delivery")
	if more {
		words = "at least " + words
	}
	return sentence(fmt.Sprintf("%s to %s %s given up within 24 hours", words, count(endpoints, "endpoint"), were(n)), "dead letters can be sent again")
}
