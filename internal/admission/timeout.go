package admission

import (
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// An automatic timeout is autoFactor × the p99 of the answers of the last 15 minutes,
// rounded up to whole steps within [autoLeast, webhook.MaxTimeout]. See docs/adr/0028.
const (
	autoFactor = 3
	autoLeast  = 5 * time.Second
	autoStep   = time.Second
	autoSteps  = int((webhook.MaxTimeout-autoLeast)/autoStep) + 1
	// autoEnough is how many answers there have to be; with fewer the timeout is
	// webhook.DefaultTimeout.
	autoEnough = 20
)

// answers counts the latencies that an automatic timeout follows, by the timeout that
// each of them alone would lead to: nothing finer is needed, so they take about 500 bytes.
type answers struct {
	rolling[[autoSteps]uint32]
}

// autoStepOf is the number of steps above autoLeast that a latency leads to.
func autoStepOf(latency time.Duration) int {
	over := autoFactor*min(latency, webhook.MaxTimeout) - autoLeast
	return int(min(max(over+autoStep-1, 0)/autoStep, time.Duration(autoSteps-1)))
}

// learn counts a success with its latency, and a time-out with the time that the request
// had: the answer would have taken longer. Without that, a timeout that is too short
// would see none of those that it cuts off, and never grow.
func (a *answers) learn(now time.Duration, p *Permit, r *Result) {
	switch {
	case r.Delivered:
		a.roll(now)[autoStepOf(r.Latency)]++
	case r.TimedOut:
		a.roll(now)[autoStepOf(p.timeout)]++
	}
}

// sum is what was counted, and how much that is in all.
func (a *answers) sum(now time.Duration) (steps [autoSteps]uint64, n uint64) {
	a.roll(now)
	for i := range a.parts {
		for step, count := range a.parts[i] {
			steps[step] += uint64(count)
			n += uint64(count)
		}
	}
	return steps, n
}

// count is how many answers are remembered; none of nil.
func (a *answers) count(now time.Duration) uint64 {
	if a == nil {
		return 0
	}
	_, n := a.sum(now)
	return n
}

// timeout is the one that they lead to.
func (a *answers) timeout(now time.Duration) time.Duration {
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

// timeout is how long a request may take that goes now. An automatic one is doubled for
// each attempt that was made before, as a TCP's retransmission timer is (RFC 6298,
// section 5.5): however short it is, a delivery that takes longer gets the time it needs.
func (e *endpoint) timeout(now time.Duration, retries int) time.Duration {
	if e.answers == nil {
		return e.limits.Timeout
	}
	timeout := e.answers.timeout(now)
	for ; retries > 0 && timeout < webhook.MaxTimeout; retries-- {
		timeout = min(2*timeout, webhook.MaxTimeout)
	}
	return timeout
}

// Timeout is how long the request may take: the limits' Timeout; or, when that follows
// the answers, three times the p99 of those of the last 15 minutes, 5 to 30 s, and 15 s
// while fewer than 20 are known. A retry has twice the time of the attempt before it,
// up to 30 s.
func (p *Permit) Timeout() time.Duration { return p.timeout }

// timedOut says whether a receiver that was there did not answer in time. One that takes
// no connection is not slow but away, and more time would be lost on it.
func timedOut(reason retry.Reason) bool {
	return reason == retry.ReasonTimeoutTLS || reason == retry.ReasonTimeoutHeaders || reason == retry.ReasonTimeoutBody
}
