package main

import (
	"fmt"
	"slices"
	"time"
)

// latest is the attempt after a fault that was most late.
type latest struct {
	late     time.Duration
	delivery string
	endpoint int
	attempt  int
}

// String names the attempt, "" if there was none.
func (l latest) String() string {
	if l.delivery == "" {
		return ""
	}
	return fmt.Sprintf(" (%s to endpoint %d, attempt %d)", l.delivery, l.endpoint, l.attempt)
}

// latestAttempt is the attempt after the end of the fault that was most late: what was due during the fault counts from its end. Not counted is
// what waits for other reasons: a paused endpoint, a command, a replay's rate. It is pure.
func latestAttempt(l *ledger, r *record, end time.Time) (most latest) {
	asked := pausesAsked(l)
	for id, p := range l.promised {
		if p.endpoint == paused || p.asked(retryNow) || p.asked(reschedule) {
			continue
		}
		attempts := r.attempts[id]
		late := func(i int, due time.Time) {
			started := attempts[i].started
			for _, until := range asked[p.endpoint] {
				if until.Add(-retryAfter).Before(started) && due.Before(until) {
					due = until
				}
			}
			if due.Before(end) {
				due = end
			}
			if by := started.Sub(due); by > most.late {
				most = latest{by, id, p.endpoint, attempts[i].number}
			}
		}
		if len(attempts) > 0 {
			late(0, r.deliveries[id].due)
		}
		for i, due := range retriesDue(attempts) {
			late(i, due)
		}
	}
	return most
}

// pausesAsked is until when each receiver asked for a pause, in order of time.
func pausesAsked(l *ledger) [endpoints][]time.Time {
	var all [endpoints][]time.Time
	for _, a := range l.arrivals {
		if asksForPause(a.status) {
			all[a.endpoint] = append(all[a.endpoint], a.at.Add(retryAfter))
		}
	}
	for i := range all {
		slices.SortFunc(all[i], time.Time.Compare)
	}
	return all
}

// firstAttempts is how long after it was due each first attempt to an endpoint that nothing holds up was made.
func firstAttempts(l *ledger, r *record) (all []time.Duration) {
	for id, p := range l.promised {
		if attempts := r.attempts[id]; len(attempts) > 0 && len(p.commands) == 0 && (p.endpoint == steady || p.endpoint == changing) {
			all = append(all, attempts[0].started.Sub(r.deliveries[id].due))
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
