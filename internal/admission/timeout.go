package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// An automatic timeout is autoFactor × the p99 of the latencies of the last 15 minutes, rounded
// up to whole steps within [autoLeast, webhook.MaxTimeout]. See docs/adr/0011.
const (
	autoFactor = 3
	autoLeast  = 5 * time.Second
	autoStep   = time.Second
	autoSteps  = int((webhook.MaxTimeout-autoLeast)/autoStep) + 1
	// autoEnough is how many answers there have to be; with fewer the timeout is
	// webhook.DefaultTimeout.
	autoEnough = 20
)

// autoTimeout counts the latencies that an automatic timeout follows, by the timeout that each
// of them alone would lead to: nothing finer is needed, so they take about 500 bytes.
type autoTimeout struct {
	window[[autoSteps]uint32]
}

// autoStepOf is the number of steps above autoLeast that a latency leads to.
func autoStepOf(latency time.Duration) int {
	over := autoFactor*min(latency, webhook.MaxTimeout) - autoLeast
	return int(min(max(over+autoStep-1, 0)/autoStep, time.Duration(autoSteps-1)))
}

// learn counts a success with its latency, and a time-out with the time that the request had:
// the answer would have taken longer. Without that, a timeout that is too short would see none
// of the requests that it cuts off, and never grow.
func (a *autoTimeout) learn(now, timeout time.Duration, r *Result) {
	switch {
	case r.Delivered:
		a.at(now, recentPart)[autoStepOf(r.Latency)]++
	case r.TimedOut:
		a.at(now, recentPart)[autoStepOf(timeout)]++
	}
}

// sum returns the counts of the window, and how many latencies that are.
func (a *autoTimeout) sum(now time.Duration) (steps [autoSteps]uint64, n uint64) {
	a.at(now, recentPart)
	for i := range a.parts {
		for step, count := range a.parts[i] {
			steps[step] += uint64(count)
			n += uint64(count)
		}
	}
	return steps, n
}

// empty reports whether there is no latency; nil is empty.
func (a *autoTimeout) empty(now time.Duration) bool {
	if a == nil {
		return true
	}
	_, n := a.sum(now)
	return n == 0
}

// timeout is that of a request with so many retries before it. It is doubled for each, as the
// retransmission timer of TCP is (RFC 6298, section 5.5): however short it is, a delivery that
// takes longer gets the time it needs.
func (a *autoTimeout) timeout(now time.Duration, retries int) time.Duration {
	timeout := a.first(now)
	for ; retries > 0 && timeout < webhook.MaxTimeout; retries-- {
		timeout = min(2*timeout, webhook.MaxTimeout)
	}
	return timeout
}

// first is the timeout of a first attempt.
func (a *autoTimeout) first(now time.Duration) time.Duration {
	steps, n := a.sum(now)
	if n < autoEnough {
		return webhook.DefaultTimeout
	}
	// The p99 by nearest rank is the longest but for n/100.
	step, longer := autoSteps-1, n/100
	for ; step > 0 && steps[step] <= longer; step-- {
		longer -= steps[step]
	}
	return autoLeast + time.Duration(step)*autoStep
}
