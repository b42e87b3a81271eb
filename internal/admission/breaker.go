package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// maxCooldown is the longest cooldown between two probes.
	maxCooldown = 10 * time.Minute
	// calm is how long a circuit must have been closed for its next opening to count as the
	// first. A circuit that opens again sooner gets a longer cooldown, so that an intermittent
	// receiver does not open and close it all the time. The cooldown is at most relapses times
	// the first one, so that the receiver is not cut off either.
	calm     = 5 * time.Minute
	relapses = 4
	// earlyProbe is the part by which a doubled cooldown is shortened at random: a receiver that
	// fails in step with the probes would never be found healthy.
	earlyProbe = 0.2
)

// counter counts the requests of a rolling window, and trips when too many failed.
type counter = gobreaker.TwoStepCircuitBreaker[struct{}]

// errFailed stands for a failed request in the counter.
var errFailed = errors.New("the request failed")

// breaker is the circuit breaker of an endpoint. It opens when too many requests of a rolling
// window failed, admits one probe after a cooldown, and closes when that succeeds. gobreaker
// counts and trips. The cooldowns are ours, because gobreaker's are all of one length and begin at
// a time that it does not report.
//
// A request counts when it ends, and only if the state has not changed since it was admitted: one
// that hangs for longer than the window would never count otherwise.
type breaker struct {
	settings webhook.CircuitBreaker
	random   func() float64
	counter  *counter // counts the window while it is closed; nil until the first result

	state    webhook.CircuitState
	epoch    uint32         // changes with the state; a result of an earlier epoch says nothing
	until    time.Duration  // while it is open: the end of the cooldown
	cooldown time.Duration  // of the last opening
	probe    *activeRequest // the probe under way
	since    time.Duration  // of the outage or the recovery
	changed  bool           // since is set
	closedAt time.Duration  // when it closed last

	failures, requests uint32       // in the window, when it opened
	last               retry.Reason // of the last failure before it opened
	forced             time.Time    // when a person has closed it last, see Controller.CloseCircuit
}

// configure changes the settings. A closed breaker then starts a new count. Switching the breaker
// off closes it.
func (b *breaker) configure(now time.Duration, settings webhook.CircuitBreaker) {
	if settings == b.settings {
		return
	}
	b.settings = settings
	if b.state == webhook.CircuitClosed {
		b.counter = nil
	} else if !settings.Enabled {
		b.close(now)
	}
}

// report passes the result of a request to the breaker.
func (b *breaker) report(now time.Duration, f *activeRequest, s signal, reason retry.Reason) {
	switch {
	case f.epoch != b.epoch:
	case f == b.probe:
		b.probe = nil
		switch s {
		case signalNone: // the next request is the probe
		case signalSuccess:
			b.close(now)
		case signalFailure:
			b.open(now, 2*b.cooldown, reason)
		}
	case b.settings.Enabled && b.state == webhook.CircuitClosed && s != signalNone:
		if b.trips(s) {
			cooldown := b.settings.Cooldown
			if b.cooldown > 0 && now-b.closedAt < calm {
				cooldown = min(2*b.cooldown, cooldown*relapses)
			}
			b.open(now, cooldown, reason)
		}
	}
}

// trips counts a result and reports whether enough of the window's requests failed for the circuit
// to open.
func (b *breaker) trips(s signal) bool {
	if b.counter == nil {
		b.counter = b.newCounter()
	}
	done, err := b.counter.Allow()
	if err != nil {
		return false // it has tripped already
	}
	var verdict error
	if s == signalFailure {
		verdict = errFailed
	}
	done(verdict)
	return b.counter.State() == gobreaker.StateOpen
}

// newCounter makes a counter for the present settings.
func (b *breaker) newCounter() *counter {
	settings := b.settings
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     settings.Window,
		BucketPeriod: (settings.Window + windowParts - 1) / windowParts,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			requests := counts.TotalSuccesses + counts.TotalFailures
			if int64(requests) < int64(settings.MinRequests) || float64(counts.TotalFailures) < settings.FailureRatio*float64(requests) {
				return false
			}
			b.failures, b.requests = counts.TotalFailures, requests
			return true
		},
	})
}

// open admits no requests for a cooldown.
func (b *breaker) open(now, cooldown time.Duration, reason retry.Reason) {
	cooldown = max(min(cooldown, maxCooldown), b.settings.Cooldown)
	rest := cooldown
	if b.state != webhook.CircuitClosed || cooldown != b.settings.Cooldown {
		rest -= time.Duration(earlyProbe * b.random() * float64(cooldown))
	}
	if b.state == webhook.CircuitClosed {
		b.since, b.changed = now, true
	}
	b.state, b.cooldown, b.until, b.last = webhook.CircuitOpen, cooldown, now+rest, reason
	b.epoch++
}

// takeOver opens the circuit as it was open in another controller.
func (b *breaker) takeOver(now time.Duration, o *OpenCircuit) {
	b.state, b.probe, b.cooldown, b.until, b.last = webhook.CircuitOpen, nil, o.Cooldown, now+o.NextProbe, o.Last
	b.since, b.changed, b.failures, b.requests = now-o.Since, true, o.Failures, o.Requests
	b.epoch++
}

// close admits requests again.
func (b *breaker) close(now time.Duration) {
	b.state, b.probe = webhook.CircuitClosed, nil
	b.since, b.changed, b.closedAt = now, true, now
	b.epoch++
	b.counter = nil
}

// reset closes the circuit and forgets what was counted, and how often it opened.
func (b *breaker) reset(now time.Duration) {
	if b.state != webhook.CircuitClosed {
		b.close(now)
	}
	b.counter = nil
	b.cooldown = 0
	b.epoch++
}

// probeDue reports whether a request that is admitted now is the probe.
func (b *breaker) probeDue(now time.Duration) bool {
	return b.state != webhook.CircuitClosed && b.probe == nil && now >= b.until
}

// beginProbe makes a request the probe.
func (b *breaker) beginProbe(f *activeRequest) { b.state, b.probe = webhook.CircuitHalfOpen, f }

// endCooldown lets the next request be the probe; false when that makes no difference.
func (b *breaker) endCooldown(now time.Duration) bool {
	if b.state == webhook.CircuitClosed || b.probe != nil {
		return false
	}
	b.until = min(b.until, now)
	return true
}

// forceProbe makes an open circuit half open for a person who says that the receiver is healthy.
// If the probe fails, the cooldown is that of a first opening. A second call with the same time
// changes nothing.
func (b *breaker) forceProbe(now time.Duration, at time.Time) (wasOpen bool) {
	again := b.forced.Equal(at)
	b.forced = at
	if again || b.state != webhook.CircuitOpen {
		return false
	}
	b.endCooldown(now)
	b.cooldown = 0
	b.state = webhook.CircuitHalfOpen
	return true
}

// relapsed reports whether the circuit has opened more than once in the same outage.
func (b *breaker) relapsed() bool {
	return b.state != webhook.CircuitClosed && b.cooldown > b.settings.Cooldown
}

// recoversFromRelapse reports for how long a circuit that had relapsed has been closed; false
// when it had not, or that is long ago.
func (b *breaker) recoversFromRelapse(now time.Duration) (time.Duration, bool) {
	closed := now - b.closedAt
	return closed, b.state == webhook.CircuitClosed && b.cooldown > b.settings.Cooldown && closed < calm
}

// why says why the circuit is not closed.
func (b *breaker) why() string {
	if b.state == webhook.CircuitClosed || b.requests == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed, the last with %s", b.failures, b.requests, b.last)
}
