package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	recentPart  = 3 * time.Minute
	recentParts = 5 // 15 minutes
)

// Recent counts the attempts of the last 15 minutes (12 to 15, as the count rolls).
type Recent struct {
	Delivered, Failed int
	First, Retries    int // first attempts and later ones
}

// SuccessRatio is the share of attempts that delivered; false when there was none.
func (r Recent) SuccessRatio() (float64, bool) {
	if r.Delivered+r.Failed == 0 {
		return 0, false
	}
	return float64(r.Delivered) / float64(r.Delivered+r.Failed), true
}

// RetryRatio is retries ÷ first attempts, of which at least one is assumed.
func (r Recent) RetryRatio() float64 { return float64(r.Retries) / float64(max(r.First, 1)) }

// rolling are counts of the last 15 minutes, in parts.
type rolling[T any] struct {
	parts [recentParts]T
	part  int64 // the present one, counted from the gate's beginning
}

// roll empties the parts that have become old and returns the present one.
func (r *rolling[T]) roll(now time.Duration) *T {
	part := int64(now / recentPart)
	for n := 0; r.part < part && n < recentParts; n++ {
		r.part++
		clear(r.parts[r.part%recentParts : r.part%recentParts+1])
	}
	r.part = part
	return &r.parts[part%recentParts]
}

// recent are the counts behind Recent.
type recent struct {
	rolling[struct{ delivered, failed, first, retries uint32 }]

	successStreak, failureStreak int
}

func (r *recent) count(now time.Duration, result *Result) {
	part := r.roll(now)
	if result.Delivered {
		part.delivered++
		r.successStreak++
		r.failureStreak = 0
	} else {
		part.failed++
		r.failureStreak++
		r.successStreak = 0
	}
	if result.Number > 1 {
		part.retries++
	} else {
		part.first++
	}
}

func (r *recent) sum(now time.Duration) Recent {
	r.roll(now)
	var sum Recent
	for i := range r.parts {
		sum.Delivered += int(r.parts[i].delivered)
		sum.Failed += int(r.parts[i].failed)
		sum.First += int(r.parts[i].first)
		sum.Retries += int(r.parts[i].retries)
	}
	return sum
}

// Health is how an endpoint is seen by this process.
type Health struct {
	Circuit   Circuit
	Since     time.Time // of the circuit's trouble or recovery; zero when it was never open
	Why       string    // it is not closed: "14 of 20 requests failed, the last with http_503"
	NextProbe time.Time // while it is open
	ProbeOver time.Time // while a probe is under way: when it is likely to be over

	BlockedUntil time.Time // what the receiver asked for; zero when nothing
	BlockedFor   Reason

	Latency     time.Duration // smoothed; 0 when nothing is known
	Rate        float64       // per second that may go now; 0 while nobody goes
	RecentRate  float64       // smoothed, of requests per second that went
	EarlierRate float64       // that before the last trouble; 0 when there was none
	Recovering  bool          // the rate rises after a trouble, and is not what it may be yet
	WaitsFor    Reason        // what somebody who came now would wait for longer than a moment
	Timeout     time.Duration // of a first attempt that goes now, when it follows the answers; 0 when not

	InFlight int
	Waiting  int // inside Acquire
	Reserved int // deferred, with a time of their own

	Recent
	SuccessStreak, FailureStreak int // attempts in a row
}

// Health tells how an endpoint is. One that is not remembered has the zero Health.
func (g *Controller) Health(id webhook.EndpointID) Health {
	var h Health
	g.look(id, func(e *endpoint, now time.Duration) { h = e.health(now) })
	return h
}

func (e *endpoint) health(now time.Duration) Health {
	at := func(d time.Duration) time.Time { return e.shard.gate.base.Add(d) }
	c := &e.circuit
	h := Health{
		Circuit: c.state, Since: c.since, Why: c.why(),
		Rate: e.effectiveRate(now), RecentRate: e.recentRate(now), EarlierRate: e.earlier, Recovering: e.recovering(now),
		InFlight: e.inFlight, Waiting: len(e.waiters), Reserved: len(e.line.slots) - len(e.waiters),
		Recent: e.recent.sum(now), SuccessStreak: e.recent.successStreak, FailureStreak: e.recent.failureStreak,
	}
	if e.known || e.inFlight > 0 {
		h.Latency = e.smoothed(now)
	}
	if e.limits.AutoTimeout {
		h.Timeout = e.timeout(now, 0)
	}
	if c.state == CircuitOpen {
		h.NextProbe = at(c.until)
	}
	if c.probe != nil {
		over := c.probe.start + e.probeTime(now)
		if over <= now { // it takes longer than usual, and no longer than it may
			over = max(c.probe.start+c.probe.timeout, now+minProbe)
		}
		h.ProbeOver = at(over)
	}
	if e.barredUntil > now {
		h.BlockedUntil, h.BlockedFor = at(e.barredUntil), e.barredReason
	}
	if turn, reason := e.earliest(now); turn > now+e.patience() {
		h.WaitsFor = reason
	}
	return h
}

// recovering says whether the slope after a trouble is what bounds the rate.
func (e *endpoint) recovering(now time.Duration) bool {
	until, _ := e.barred(now)
	return until <= now && e.ramp.on && e.ramp.rate(now) < e.limits.Rate
}

// well says whether there is nothing to tell of an endpoint but that it answers, or
// that nothing was sent to it lately.
func (e *endpoint) well(now time.Duration) bool {
	until, _ := e.barred(now)
	if until > now || len(e.line.slots) > 0 || e.recovering(now) {
		return false
	}
	troubled := e.recent.failureStreak > 0 || e.smoothed(now) > slowLatency
	sum := e.recent.sum(now)
	return !troubled || e.inFlight == 0 && sum.Delivered+sum.Failed == 0
}

// EachUnhealthy calls f with every endpoint of which there is more to tell than that it
// answers: nobody goes or somebody waits, it failed last, it is slow, or it recovers.
// Those of a shard are copied under its lock, and f is called without one: the whole
// is not of one moment.
func (g *Controller) EachUnhealthy(f func(webhook.EndpointID, Health)) {
	type seen struct {
		id     webhook.EndpointID
		health Health
	}
	var copied []seen
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		now := g.now()
		for id, e := range s.endpoints {
			e.expire(now)
			if !e.well(now) {
				copied = append(copied, seen{id, e.health(now)})
			}
		}
		s.unlock()
		for _, one := range copied {
			f(one.id, one.health)
		}
		copied = copied[:0]
	}
}

// slowLatency is the smoothed latency above which an endpoint is slow.
const slowLatency = time.Second

// Slow says whether an attempt is likely to take long: the latency is above 1 s, or
// the wait longer than Acquire's, or nobody goes.
func (g *Controller) Slow(id webhook.EndpointID) bool {
	slow := false
	g.look(id, func(e *endpoint, now time.Duration) {
		at, _ := e.earliest(now)
		slow = e.ails(now) || at > now+e.patience()
	})
	return slow
}

// ails says whether nobody goes, or requests take long.
func (e *endpoint) ails(now time.Duration) bool {
	return e.circuit.state != CircuitClosed || e.smoothed(now) > slowLatency
}

// failingStreak is how many requests in a row must have failed for an endpoint to be failing.
const failingStreak = 2

// Forecast is what a new delivery of an endpoint has to expect.
type Forecast struct {
	Wait      time.Duration // until it would be admitted
	Rate      float64       // how many per second are admitted after that
	Unhealthy bool          // the last two requests failed, the latency is above 1 s, or the circuit is not closed
}

// Forecast predicts the next admission. It is zero for an endpoint of which nothing is known.
// A request that delivers ends a row of failures, time does not.
func (g *Controller) Forecast(id webhook.EndpointID) (f Forecast) {
	g.look(id, func(e *endpoint, now time.Duration) {
		at, _ := e.earliest(now)
		f = Forecast{Wait: max(0, at-now), Rate: e.effectiveRate(now), Unhealthy: e.recent.failureStreak >= failingStreak || e.ails(now)}
	})
	return f
}

// Rate is how many requests per second may go now: the least of the configured rate,
// what the latency and the places allow, and the slope after a recovery. 0 while
// nobody goes. An endpoint that is not remembered has the rate of its limits.
func (g *Controller) Rate(id webhook.EndpointID, limits Limits) float64 {
	rate := limits.withDefaults().Rate
	g.look(id, func(e *endpoint, now time.Duration) { rate = min(rate, e.effectiveRate(now)) })
	return rate
}

// Room is how many more reservations fit into the time until the horizon. So many
// may be released of what is held.
func (g *Controller) Room(id webhook.EndpointID) int {
	room := unknownReserved
	g.look(id, func(e *endpoint, now time.Duration) { room = e.room(now) })
	return max(0, min(room, int(g.maxReserved-g.reserved.Load())))
}

// releaseAhead is for how long what is released of a backlog lasts: what is released
// and cannot go soon costs a timer each, and comes for nothing when trouble is back.
const releaseAhead = 10 * time.Second

// Releasable is how many of what is held for an endpoint are to be released now: what
// may go within the next ten seconds, less what has a time already, and never so few
// that nobody would find out that the receiver is back.
func (g *Controller) Releasable(id webhook.EndpointID) int {
	n := unknownReserved
	g.look(id, func(e *endpoint, now time.Duration) {
		ahead := int(e.effectiveRate(now) * releaseAhead.Seconds())
		n = min(e.room(now), max(ahead, pioneers)-len(e.line.slots))
	})
	return max(0, min(n, int(g.maxReserved-g.reserved.Load())))
}

func (e *endpoint) room(now time.Duration) int {
	taken := len(e.line.slots)
	from := now
	if until, _ := e.barred(now); until > now {
		from = until
	}
	const step = 5 * time.Second // the slope hardly rises within
	tempo, fit := e.tempo(now), 0.0
	end := now + e.reach(now, true)
	for at := from; at < end; at += step {
		fit += float64(min(step, end-at)) / float64(tempo.gap(at))
	}
	return max(min(int(fit), e.mayReserve()), pioneers) - taken
}

// look calls f with what is remembered of an endpoint, if anything.
func (g *Controller) look(id webhook.EndpointID, f func(e *endpoint, now time.Duration)) {
	s := g.shard(id)
	s.mu.Lock()
	defer s.unlock()
	if e := s.endpoints[id]; e != nil {
		now := g.now()
		e.expire(now)
		f(e, now)
	}
}

// Totals are sums over all endpoints.
type Totals struct {
	Endpoints, InFlight, Waiting, Reserved int
	NotClosed                              int // circuits
}

// Totals counts. It takes each lock in turn, so the sums need not be of one moment.
func (g *Controller) Totals() Totals {
	var sum Totals
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for _, e := range s.endpoints {
			sum.Endpoints++
			sum.InFlight += e.inFlight
			sum.Waiting += len(e.waiters)
			sum.Reserved += len(e.line.slots) - len(e.waiters)
			if e.circuit.state != CircuitClosed {
				sum.NotClosed++
			}
		}
		s.mu.Unlock()
	}
	return sum
}
