package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Circuit is the state of an endpoint's circuit breaker.
type Circuit uint8

// The states of a circuit.
const (
	CircuitClosed   Circuit = iota // requests go
	CircuitOpen                    // none goes
	CircuitHalfOpen                // one goes, and decides
)

// String is the state's name in the API.
func (c Circuit) String() string {
	switch c {
	case CircuitClosed:
		return "closed"
	case CircuitOpen:
		return "open"
	case CircuitHalfOpen:
		return "half_open"
	}
	return "unknown"
}

const (
	// maxCooldown is how long a receiver is left alone at most between two probes.
	maxCooldown = 10 * time.Minute
	// calm is how long a circuit must have been closed for its next opening to count
	// as the first. One that opens again sooner rests for longer, so that a receiver
	// that comes and goes does not open and close it all the time; up to relapses times
	// its cooldown, so that it is not cut off either.
	calm     = 5 * time.Minute
	relapses = 4
	// earlyProbe is the part by which a doubled cooldown is shortened at random: a
	// receiver that comes and goes in time with our probes would never be found well.
	earlyProbe = 0.2
	// windowParts is how finely the window rolls.
	windowParts = 6
	// openMargin keeps our end of a cooldown behind gobreaker's, which reads the clock
	// a little later than we do.
	openMargin = 5 * time.Millisecond
	// minProbe is what a probe is expected to take at least.
	minProbe = 100 * time.Millisecond
)

// What gobreaker is told of a request.
var (
	errTrouble = errors.New("the receiver is in trouble")
	errUnheard = errors.New("nothing was learnt of the receiver")
)

type breaker = gobreaker.TwoStepCircuitBreaker[struct{}]

// circuit is an endpoint's breaker and what is known beside it. gobreaker counts,
// opens, lets one probe through and closes; how long a cooldown takes is ours, and
// since gobreaker's is fixed, one with another cooldown replaces it.
type circuit struct {
	state    Circuit
	breaker  *breaker      // nil until the first result, and when switched off
	epoch    uint32        // a result of an earlier epoch says nothing about this one
	forced   bool          // the breaker opens on the next failure, whatever it has counted
	tripped  bool          // the breaker has opened
	since    time.Time     // of the trouble or the recovery; zero when there was none
	until    time.Duration // while open: the end of the cooldown
	cooldown time.Duration // of the last opening
	closed   time.Duration // when it closed last
	probe    *Permit
	tell     func(error) // tells gobreaker what became of the probe
	failures uint32      // of requests, when it opened
	requests uint32
	last     retry.Reason // of the trouble that opened it
	said     time.Time    // when a person has closed it last
}

// newBreaker makes one that rests for cooldown when it opens.
func (e *endpoint) newBreaker(cooldown time.Duration) *breaker {
	window := e.limits.Breaker.Window
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     window,
		BucketPeriod: (window + windowParts - 1) / windowParts,
		Timeout:      cooldown,
		ReadyToTrip:  e.readyToTrip,
		IsExcluded:   unheard,
	})
}

func unheard(err error) bool { return errors.Is(err, errUnheard) }

// readyToTrip is asked by gobreaker after a failure.
func (e *endpoint) readyToTrip(counts gobreaker.Counts) bool {
	if e.circuit.forced {
		return true
	}
	ended := counts.TotalSuccesses + counts.TotalFailures
	settings := e.limits.Breaker
	if int64(ended) < int64(settings.MinRequests) || float64(counts.TotalFailures) < settings.FailureRatio*float64(ended) {
		return false
	}
	e.circuit.tripped = true
	e.circuit.failures, e.circuit.requests = counts.TotalFailures, ended
	return true
}

// judge tells the breaker what became of a request. A request counts when it ends:
// one that hangs for longer than the window would else never count.
func (e *endpoint) judge(now time.Duration, p *Permit, verdict error) {
	c := &e.circuit
	if p.epoch != c.epoch {
		return
	}
	if p == c.probe {
		e.probed(now, verdict)
		return
	}
	if !e.limits.Breaker.Enabled || c.state != CircuitClosed {
		return
	}
	if c.breaker == nil {
		c.breaker = e.newBreaker(e.limits.Breaker.Cooldown)
	}
	done, err := c.breaker.Allow()
	if err != nil {
		return // it is open by a trouble of this very moment
	}
	done(verdict)
	if c.tripped {
		c.tripped = false
		cooldown := e.limits.Breaker.Cooldown
		if c.cooldown > 0 && now-c.closed < calm {
			cooldown = min(c.cooldown*2, cooldown*relapses)
		}
		e.open(now, cooldown)
	}
}

// probed is what follows from a probe.
func (e *endpoint) probed(now time.Duration, verdict error) {
	c := &e.circuit
	tell := c.tell
	c.probe, c.tell = nil, nil
	tell(verdict)
	switch {
	case unheard(verdict): // the next one asks again
	case verdict != nil:
		e.open(now, c.cooldown*2)
	default:
		e.recover(now)
	}
}

// recover closes the circuit and begins the slope.
func (e *endpoint) recover(now time.Duration) {
	e.close(now)
	if now > e.ramp.from+soon { // what is reserved is for one that was expected long ago
		e.turnAway(never)
	}
	e.slope(now, rampTime)
}

// open gives the receiver a rest.
func (e *endpoint) open(now, cooldown time.Duration) {
	c := &e.circuit
	cooldown = max(min(cooldown, maxCooldown), e.limits.Breaker.Cooldown)
	rest := cooldown
	if c.state != CircuitClosed || cooldown != e.limits.Breaker.Cooldown {
		rest -= time.Duration(earlyProbe * e.shard.gate.config.Random() * float64(cooldown))
		c.breaker = e.newBreaker(rest)
		c.forced = true
		if done, err := c.breaker.Allow(); err == nil {
			done(errTrouble)
		}
		c.forced = false
	}
	from := c.state
	if from == CircuitClosed {
		c.since = e.shard.gate.base.Add(now)
	}
	c.state, c.cooldown, c.until = CircuitOpen, cooldown, now+rest+openMargin
	c.epoch++
	c.last = e.lastTrouble
	e.changed(now, from)
	e.turnAway(never)
	e.slope(c.until+e.probeTime(now), rampTime)
}

// close lets requests go again.
func (e *endpoint) close(now time.Duration) {
	c := &e.circuit
	from := c.state
	c.state, c.breaker, c.probe, c.tell = CircuitClosed, nil, nil, nil
	c.since, c.closed = e.shard.gate.base.Add(now), now
	c.epoch++
	if from != CircuitClosed {
		e.changed(now, from)
	}
}

// endRest ends the cooldown of a circuit that is not closed, so that whoever comes next is the
// probe. The breaker that lets it through decides nothing: probed does.
func (e *endpoint) endRest(now time.Duration) {
	c := &e.circuit
	if c.state == CircuitClosed || c.probe != nil {
		return
	}
	e.next, e.paced = min(e.next, e.sentAt+e.every), min(e.paced, now) // the rate holds, the slope's pace does not
	if now >= c.until {
		return
	}
	c.until = now
	c.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		ReadyToTrip: func(gobreaker.Counts) bool { return false }, IsExcluded: unheard,
	})
}

// CloseCircuit is for a person who says that a receiver is well: a circuit that is open becomes
// half open, and whoever comes next is the probe. If that fails, the circuit rests as it did
// first. at tells one time of saying so from another: each is carried out once. False: nothing
// was to be done.
func (g *Controller) CloseCircuit(id webhook.EndpointID, at time.Time) (wasOpen bool) {
	g.look(id, func(e *endpoint, now time.Duration) {
		c := &e.circuit
		said := c.said.Equal(at)
		if c.said = at; said || c.state != CircuitOpen {
			return
		}
		wasOpen = true
		c.cooldown = 0
		e.endRest(now)
		c.state = CircuitHalfOpen
		e.changed(now, CircuitOpen)
		e.pump(now)
	})
	return wasOpen
}

// OpenCircuits are the endpoints whose circuits are open.
func (g *Controller) OpenCircuits() (all []webhook.EndpointID) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for id, e := range s.endpoints {
			if e.circuit.state == CircuitOpen {
				all = append(all, id)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// tryProbe admits a request as the probe, if this is the moment for one.
func (e *endpoint) tryProbe(now time.Duration, retries int) *Permit {
	c := &e.circuit
	if !e.probeDue(now) || !e.host.hasPlace(now, e) {
		return nil
	}
	done, err := c.breaker.Allow()
	if err != nil {
		return nil
	}
	if c.state == CircuitOpen {
		c.state = CircuitHalfOpen
		e.changed(now, CircuitOpen)
	}
	p := e.admit(now, now, retries)
	c.probe, c.tell = p, done
	return p
}

// probeDue says whether this is the moment for a probe, as far as the endpoint is
// concerned.
func (e *endpoint) probeDue(now time.Duration) bool {
	c := &e.circuit
	return now >= c.until && c.probe == nil && e.inFlight < e.limits.MaxInFlight && e.conforms(now)
}

// afterProbe is when the next one should come while the circuit is not closed: the
// first at the end of the cooldown, the others when its probe is likely to be over.
func (e *endpoint) afterProbe(now time.Duration) time.Duration {
	c := &e.circuit
	probe := e.probeTime(now)
	if c.probe != nil {
		return max(c.probe.start+probe, now)
	}
	from := max(c.until, e.host.nextFree(now))
	if n := len(e.line.slots); n > 0 && e.line.slots[n-1].at >= c.until {
		from += probe
	}
	return from
}

func (e *endpoint) probeTime(now time.Duration) time.Duration {
	return min(max(e.smoothed(now)*3/2, minProbe), e.timeout(now, 0))
}

// relapsed says that the circuit has opened more than once for the same trouble:
// whoever came back for nothing would do so again and again.
func (e *endpoint) relapsed() bool {
	return e.circuit.state != CircuitClosed && e.circuit.cooldown > e.limits.Breaker.Cooldown
}

// why tells a person why the circuit opened.
func (c *circuit) why() string {
	if c.state == CircuitClosed || c.requests == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed, the last with %s", c.failures, c.requests, c.last)
}
