package main

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// cause is what may make a request go out twice under the same number of attempt.
type cause uint8

const (
	never      cause = iota // nothing
	unrecorded              // its outcome was not in the database when a process was killed
	underWay                // it was made shortly before, during or shortly after the fault
)

func (c cause) String() string { return [...]string{"never", "unrecorded", "under_way"}[c] }

// window is when the fault was.
type window struct {
	start, end time.Time
	recorded   map[attemptKey]bool // what the database knew just after a kill; nil if it was not asked
	duplicates cause               // that the class allows
	ready      time.Time           // when the receivers were, if that was later than the end; zero: it was not
	until      time.Time           // later first requests may not be repeated; zero: no such time
	frozen     bool                // processes stood still, so that what they had decided before happens after it
	known      time.Duration       // after which a pause is known to every process
	missed     bool                // the fault did not occur: no process reached the failpoint, or the process needed no more memory
}

const (
	inTheSocket = time.Second                    // what a dead process has written reaches the receiver a moment later
	lateAnswer  = requestTimeout + 2*time.Second // a request lives that long, with its write
	earliness   = 50 * time.Millisecond          // by which clocks may differ when delays are compared
	inTime      = time.Second                    // in which a command that was acknowledged reaches an attempt
)

// during reports whether a moment is within the fault, or so near that it may be the cause.
func (w window) during(at time.Time) bool {
	return at.After(w.start.Add(-lateAnswer)) && at.Before(w.end.Add(inTheSocket))
}

// excuses returns the cause of a second request for an attempt whose first one arrived then.
func (w window) excuses(key attemptKey, first time.Time) cause {
	switch {
	case w.duplicates == never || !w.during(first) || !w.until.IsZero() && first.After(w.until):
		return never
	case w.recorded == nil:
		return underWay
	case !w.recorded[key] && first.Before(w.start.Add(inTheSocket)):
		return unrecorded
	}
	return never
}

// verdict is what a check found.
type verdict struct {
	acknowledged, delivered, dead, cancelled, discarded int

	lost       []string
	unexpected []string
	duplicates map[string]int // by cause
}

// check compares what was promised with the database and with what arrived. It is pure.
func check(l *ledger, r *record, w window, most int) *verdict {
	c := &checker{l, r, w, &verdict{duplicates: map[string]int{}}, map[string][]arrival{}}
	for _, text := range l.problems {
		c.unexpectedf("%s", text)
	}
	for _, text := range r.left {
		c.unexpectedf("left behind: %s", text)
	}
	for _, text := range r.strange {
		c.unexpectedf("%s", text)
	}
	c.arrivals()
	for _, p := range l.sorted() {
		c.promise(p)
	}
	for _, id := range slices.Sorted(maps.Keys(r.deliveries)) {
		if l.promised[id] == nil {
			c.unexpectedf("delivery %s is in the database and was never acknowledged", id)
		}
	}
	for number, e := range l.events {
		c.matched(number, e)
	}
	c.numbers()
	if l.most > most {
		c.unexpectedf("%d requests at a time to an endpoint that takes %d; in this run %d are allowed", l.most, maxInFlight, most)
	}
	return c.v
}

type checker struct {
	l         *ledger
	r         *record
	w         window
	v         *verdict
	arrivalOf map[string][]arrival // by delivery
}

func (c *checker) lostf(format string, args ...any) {
	c.v.lost = append(c.v.lost, fmt.Sprintf(format, args...))
}

func (c *checker) unexpectedf(format string, args ...any) {
	c.v.unexpected = append(c.v.unexpected, fmt.Sprintf(format, args...))
}

// arrivals checks each request by itself: that it was promised, to this endpoint, with these bytes and this signature.
func (c *checker) arrivals() {
	for _, a := range c.l.arrivals {
		p := c.l.promised[a.delivery]
		switch {
		case p == nil:
			c.unexpectedf("a request for delivery %q, event %q, which was never acknowledged", a.delivery, a.event)
			continue
		case p.event != a.event || p.endpoint != a.endpoint:
			c.unexpectedf("delivery %s of event %s to endpoint %d arrived as event %s at endpoint %d", p.delivery, p.event, p.endpoint, a.event, a.endpoint)
		case a.body != c.l.payloads[a.event] || a.kind != c.l.types[a.event]:
			c.unexpectedf("delivery %s arrived with type %s and payload %.60q", p.delivery, a.kind, a.body)
		case a.signature != nil:
			c.unexpectedf("delivery %s: %v", p.delivery, a.signature)
		}
		c.arrivalOf[a.delivery] = append(c.arrivalOf[a.delivery], a)
	}
}

// matched checks that an event went to every endpoint that subscribes to its type, whatever happened when it was posted.
func (c *checker) matched(number int, e client.AcceptedEvent) {
	got := map[int]bool{}
	for _, d := range e.Deliveries {
		got[c.l.endpointOf[d.EndpointID]] = true
	}
	for i := range endpoints {
		wants := c.l.types[e.ID] == eventType(everyone) || c.l.types[e.ID] == eventType(i)
		if wants != got[i] && i != deleted {
			c.lostf("event %d (%s) and endpoint %d: matched %t, but it wants it: %t", number, e.ID, i, got[i], wants)
		}
	}
}

// promise checks one acknowledged (event, endpoint).
func (c *checker) promise(p *promise) {
	c.v.acknowledged++
	d, known := c.r.deliveries[p.delivery]
	if !known {
		c.lostf("delivery %s to endpoint %d was acknowledged and is not in the database; %d requests arrived",
			p.delivery, p.endpoint, len(c.arrivalOf[p.delivery]))
		return
	}
	if d.event != p.event || c.l.endpointOf[d.endpoint] != p.endpoint {
		c.unexpectedf("delivery %s is recorded for event %s and endpoint %s", p.delivery, d.event, d.endpoint)
	}
	attempts, arrivals := c.r.attempts[p.delivery], c.arrivalOf[p.delivery]
	c.end(p, d, attempts, arrivals)
	c.runs(p, d, attempts)
	c.agreement(p, d, attempts, arrivals)
	c.pace(p, d, attempts)
	c.pauses(p, attempts)
	c.commands(p, attempts)
}

// end checks that a delivery is at exactly one end, for a reason.
func (c *checker) end(p *promise, d delivery, attempts []attempt, arrivals []arrival) {
	removed := p.endpoint == deleted && c.l.removal
	last := attempt{}
	if n := len(attempts); n > 0 && attempts[n-1].run == d.run {
		last = attempts[n-1]
	}
	switch d.state {
	case webhook.StateDelivered:
		c.v.delivered++
		arrived := slices.ContainsFunc(arrivals, func(a arrival) bool { return a.number == last.number && a.status/100 == 2 })
		if !last.delivered || !arrived {
			c.lostf("delivery %s to endpoint %d is said to be delivered by attempt %d, and no receiver accepted that", p.delivery, p.endpoint, last.number)
		}
	case webhook.StateDeadLettered:
		c.v.dead++
		if !last.permanent && d.inRun < maxAttempts {
			c.unexpectedf("delivery %s is a dead letter after %d attempts, the last answered %d", p.delivery, d.inRun, last.status)
		}
	case webhook.StateCancelled:
		c.v.cancelled++
		if !p.asked(cancel) && !removed {
			c.lostf("delivery %s to endpoint %d is cancelled, which nobody asked for", p.delivery, p.endpoint)
		}
	case webhook.StateDiscarded:
		c.v.discarded++
		if !p.asked(discard) && !p.asked(cancel) && !removed {
			c.lostf("delivery %s to endpoint %d is discarded, which nobody asked for", p.delivery, p.endpoint)
		}
	case webhook.StatePending, webhook.StateRetrying, webhook.StateHeld:
		c.lostf("delivery %s to endpoint %d is still %s after %d attempts", p.delivery, p.endpoint, d.state, d.attempts)
	default:
		c.unexpectedf("delivery %s is in state %d", p.delivery, d.state)
	}
}

// runs checks that there are as many runs as replays, each with at most one success, at its end, and with the attempts that it may have.
func (c *checker) runs(p *promise, d delivery, attempts []attempt) {
	asked, acknowledged := c.l.replayed[p.endpoint], 0
	for _, k := range p.commands {
		if k.action == replay {
			asked++
			if !k.acked.IsZero() {
				acknowledged++
			}
		}
	}
	if d.run < 1+acknowledged || d.run > 1+asked {
		c.unexpectedf("delivery %s had %d runs; %d replays were acknowledged, %d asked for", p.delivery, d.run, acknowledged, asked)
	}
	if d.attempts != len(attempts) {
		c.unexpectedf("delivery %s had %d attempts, of which %d are in the database", p.delivery, d.attempts, len(attempts))
	}
	count := map[int]int{}
	for i, a := range attempts {
		if !a.reused {
			count[a.run]++
		}
		if a.number != i+1 {
			c.unexpectedf("delivery %s: attempt %d is missing or out of order", p.delivery, i+1)
		}
		if i > 0 && a.started.Before(attempts[i-1].ended.Add(-earliness)) && !c.standing(attempts[i-1]) {
			c.unexpectedf("delivery %s: attempt %d was made %s before attempt %d had ended", p.delivery, a.number,
				attempts[i-1].ended.Sub(a.started), attempts[i-1].number)
		}
		if a.delivered && i+1 < len(attempts) && attempts[i+1].run == a.run && !c.standing(a) {
			c.unexpectedf("delivery %s was delivered by attempt %d and attempted again in the same run", p.delivery, a.number)
		}
		if count[a.run] > maxAttempts && !p.asked(retryNow) && !p.asked(reschedule) {
			c.unexpectedf("delivery %s had more than %d attempts in run %d", p.delivery, maxAttempts, a.run)
		}
	}
}

// standing reports whether an attempt was delivered by a process that may have stood still meanwhile. Another one has made it in its place, without
// success, and may have begun the next one before the first knew of its answer: then the success takes the place of the
// failure.
func (c *checker) standing(a attempt) bool { return a.delivered && c.w.frozen && c.w.during(a.started) }

// agreement checks that the database and the receiver agree on each attempt, and that each second request has a cause.
func (c *checker) agreement(p *promise, d delivery, attempts []attempt, arrivals []arrival) {
	byNumber := map[int][]arrival{}
	for _, a := range arrivals {
		byNumber[a.number] = append(byNumber[a.number], a)
	}
	for _, a := range attempts {
		answered := slices.ContainsFunc(byNumber[a.number], func(at arrival) bool { return at.status == a.status })
		if a.status > 0 && !answered {
			c.unexpectedf("delivery %s: attempt %d is recorded with status %d, which no receiver gave", p.delivery, a.number, a.status)
		}
	}
	for number, at := range byNumber {
		first := at[0].at
		known := slices.ContainsFunc(attempts, func(a attempt) bool { return a.number == number })
		if !known && (d.state < webhook.StateDeadLettered || !c.w.during(first)) {
			c.unexpectedf("delivery %s: attempt %d arrived and is not in the database", p.delivery, number)
		}
		for range at[1:] {
			why := c.w.excuses(attemptKey{p.delivery, number}, first)
			if why == never || len(at) > 3 {
				c.unexpectedf("delivery %s: attempt %d arrived %d times at endpoint %d without a cause, %v s after the fault began",
					p.delivery, number, len(at), p.endpoint, c.since(at))
				break
			}
			c.v.duplicates[why.String()]++
		}
	}
}

// since are the moments of arrivals, in seconds after the fault began.
func (c *checker) since(arrivals []arrival) []float64 {
	all := make([]float64, len(arrivals))
	for i, a := range arrivals {
		all[i] = a.at.Sub(c.w.start).Round(time.Millisecond).Seconds()
	}
	return all
}

// pace checks that no attempt is made before its time, unless a command asked for it.
func (c *checker) pace(p *promise, d delivery, attempts []attempt) {
	if p.asked(retryNow) || p.asked(reschedule) {
		return
	}
	if len(attempts) > 0 && attempts[0].started.Before(d.due.Add(-earliness)) && !p.asked(replay) {
		c.unexpectedf("delivery %s: its first attempt was made %s before it was due", p.delivery, d.due.Sub(attempts[0].started))
	}
	for i, due := range retriesDue(attempts) {
		if now := attempts[i]; now.started.Before(due.Add(-earliness)) && !c.standing(attempts[i-1]) {
			before := attempts[i-1].ended
			c.unexpectedf("delivery %s: attempt %d was made %s after attempt %d, not %s",
				p.delivery, now.number, now.started.Sub(before), attempts[i-1].number, due.Sub(before))
		}
	}
}

// pauses checks that a paused endpoint gets no requests, unless a command asked for them.
func (c *checker) pauses(p *promise, attempts []attempt) {
	if p.endpoint != paused || c.l.paused.IsZero() || len(p.commands) > 0 || c.w.frozen {
		return
	}
	for _, a := range attempts {
		if a.started.After(c.l.paused.Add(c.w.known)) && a.started.Before(c.l.resumed) {
			c.unexpectedf("delivery %s: attempt %d was made %s after the pause of its endpoint was acknowledged",
				p.delivery, a.number, a.started.Sub(c.l.paused))
		}
	}
}

// retriesDue yields the retries among attempts, by their place, and when each was due.
func retriesDue(attempts []attempt) iter.Seq2[int, time.Time] {
	return func(yield func(int, time.Time) bool) {
		delays, inRun := schedule(), 0
		for i := 1; i < len(attempts); i++ {
			before := attempts[i-1]
			if !before.reused {
				inRun++
			}
			if before.run != attempts[i].run {
				inRun = 0
				continue
			}
			wait := delays[max(min(inRun-1, len(delays)-1), 0)]
			if before.reused {
				wait = 0
			}
			if asksForPause(before.status) {
				wait = max(wait, retryAfter)
			}
			if !yield(i, before.ended.Add(wait)) {
				return
			}
		}
	}
}

// asksForPause reports whether a receiver sends Retry-After with a status.
func asksForPause(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// commands checks that a cancel that was acknowledged ends the retries. The first attempt of a run may be on its way without a look at commands.
func (c *checker) commands(p *promise, attempts []attempt) {
	for _, k := range p.commands {
		if k.action != cancel || k.acked.IsZero() {
			continue
		}
		for i, a := range attempts {
			looks := p.delayed || i > 0 && attempts[i-1].run == a.run
			frozen := c.w.frozen && c.w.during(a.started)
			if looks && a.started.After(k.acked.Add(inTime)) && !frozen && !p.replayedAfter(k) {
				c.unexpectedf("delivery %s: attempt %d was made %s after the cancel was acknowledged", p.delivery, a.number, a.started.Sub(k.acked))
			}
		}
	}
}

func (p *promise) asked(a action) bool {
	return slices.ContainsFunc(p.commands, func(k command) bool { return k.action == a })
}

func (p *promise) replayedAfter(c command) bool {
	return slices.ContainsFunc(p.commands, func(k command) bool { return k.action == replay && k.asked.After(c.asked.Add(-time.Second)) })
}
