// Package notify has the rules and the texts of notifications: when people are told of an endpoint, and what a mail or a chat message says. It is
// pure.
package notify

import (
	"time"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/webhook"
)

// When people are told of an endpoint.
const (
	// minFirst is how many first attempts of the last ten minutes are enough to judge an endpoint by. It fails if half of them failed.
	minFirst = 10
	// recoversAfter is how long after it was told that an endpoint fails it may be told that it delivers again, if less than a quarter of its first
	// attempts fail then: an endpoint on the edge is not told of again and again.
	recoversAfter = 10 * time.Minute
	// openFor is how long a circuit is open until the endpoint is one that fails.
	openFor = 10 * time.Minute
	// ExpiresWithin is how long before the held deliveries of an endpoint that is paused or disabled are given up it is told.
	ExpiresWithin = 24 * time.Hour
	// expiringAgain is after how long that is told again.
	expiringAgain = 24 * time.Hour
)

// Finding is one thing to tell of an endpoint, in a sentence.
type Finding struct {
	Notice webhook.Notice
	Why    string
}

// Next returns what is to be told of an endpoint now, and what has been told then. While nothing changes, nothing is told twice.
func Next(f *webhook.EndpointFacts, now time.Time) (tell []Finding, next webhook.EndpointTold) {
	next = f.Told
	switch {
	case !expiring(f, now):
		next.Expiring = time.Time{}
	case now.Sub(f.Told.Expiring) >= expiringAgain:
		why := explain.BacklogExpiring(f.State != webhook.EndpointActive, f.HeldUntil, now)
		tell, next.Expiring = append(tell, Finding{webhook.NoticeBacklogExpiring, why}), now
	}
	if f.State == webhook.EndpointActive {
		if one, last := nextActive(f, now); last != next.Last {
			next.Last, next.At = last, now
			tell = append(tell, one)
		}
	}
	return tell, next
}

// expiring reports whether held deliveries will be given up: of an endpoint that is paused or disabled, soon; of one that is active and takes its
// deliveries, but too few of them, once the oldest has used up half of its time.
func expiring(f *webhook.EndpointFacts, now time.Time) bool {
	if f.HeldUntil.IsZero() {
		return false
	}
	if f.State != webhook.EndpointActive {
		return f.HeldUntil.Sub(now) <= ExpiresWithin
	}
	_, broken := circuitOpen(f, now)
	return !broken && 2*f.HeldUntil.Sub(now) <= f.GiveUpAfter
}

// nextActive is Next for the state of an endpoint that is active, but for its backlog.
func nextActive(f *webhook.EndpointFacts, now time.Time) (Finding, webhook.Told) {
	open, broken := circuitOpen(f, now)
	failing := 2*f.FirstFailed >= f.First && f.First >= minFirst
	switch last := f.Told.Last; {
	case disablingSoon(f):
		if last != webhook.ToldDisablingSoon {
			return Finding{webhook.NoticeDisablingSoon, explain.DisablingSoon(f.Streak, f.Exhausted, f.AutoDisable)}, webhook.ToldDisablingSoon
		}
	case failing || !open.IsZero():
		if last != webhook.ToldFailing && last != webhook.ToldDisablingSoon {
			return Finding{webhook.NoticeFailing, explain.Failing(f.First, f.FirstFailed, open, now)}, webhook.ToldFailing
		}
	case last != webhook.ToldNothing && !broken && f.DeliveredAt.After(f.Told.At) && (f.First == 0 || 4*f.FirstFailed < f.First) &&
		(last == webhook.ToldResumed || now.Sub(f.Told.At) >= recoversAfter):
		return Finding{webhook.NoticeRecovered, explain.DeliversAgain()}, webhook.ToldNothing
	}
	return Finding{}, f.Told.Last
}

// circuitOpen returns since when a circuit is open for long enough, zero if none is, and whether any process sees the endpoint fail.
func circuitOpen(f *webhook.EndpointFacts, now time.Time) (since time.Time, broken bool) {
	for i := range f.Observed {
		o := &f.Observed[i]
		if o.Circuit == webhook.CircuitOpen || o.Circuit == webhook.CircuitHalfOpen {
			broken = true
			if !o.Since.IsZero() && now.Sub(o.Since) >= openFor && (since.IsZero() || o.Since.Before(since)) {
				since = o.Since
			}
		}
		broken = broken || o.Failing()
	}
	return since, broken
}

// disablingSoon reports whether half of what disables the endpoint has happened.
func disablingSoon(f *webhook.EndpointFacts) bool {
	rule := f.AutoDisable
	return rule.Enabled && (f.Streak > 0 && 2*f.Streak >= rule.PermanentStreak || f.Exhausted > 0 && 2*f.Exhausted >= rule.Exhausted24h)
}

// AfterChange returns whether people are to be told that an endpoint has come into a state by itself, and what has been told then.
func AfterChange(told webhook.Told, state webhook.EndpointState) (tell bool, next webhook.Told) {
	switch state {
	case webhook.EndpointDisabled:
		return told != webhook.ToldDisabled, webhook.ToldDisabled
	case webhook.EndpointActive:
		if told == webhook.ToldDisabled {
			return false, webhook.ToldResumed
		}
	case webhook.EndpointPaused:
	}
	return false, told
}
