package workflows

import (
	"fmt"
	"time"
)

// When a replay with a ramp looks at the first outcomes, and how outcomes change the rate.
const (
	rampEvery   = time.Minute
	rampSample  = 20 // first outcomes; fewer say nothing
	rampDouble  = 95 // percent delivered: twice as fast from here on
	rampHalve   = 80 // percent delivered: half as fast below
	rampPause   = 50 // percent delivered: not at all below
	slowestRate = 1
)

// sample has the first outcomes of a replay's releases at one rate.
type sample struct {
	rate, ceiling     int // per minute; ceiling is what the receiver takes
	delivered, failed int64
	over              time.Duration // how long it was gathered
}

// verdict is what follows from a sample.
type verdict struct {
	rate   int
	pause  bool
	judged bool // a new sample begins; else this one goes on
}

// judge changes the rate once a minute at most. It doubles the rate when at least 95 % were
// delivered on the first attempt, never above the ceiling, and halves it below 80 %. Below
// 50 % it pauses, and does not wait for the minute to be over: the receiver is unhealthy.
//
// It does not double an unused rate: where less than half of what the rate allows has been
// made, the receiver is slow, or something else is the bottleneck.
func (s sample) judge() verdict {
	all := s.delivered + s.failed
	switch {
	case all < rampSample:
		return verdict{rate: s.rate}
	case 100*s.delivered < rampPause*all:
		return verdict{rate: s.rate, pause: true, judged: true}
	case s.over < rampEvery:
		return verdict{rate: s.rate}
	case 100*s.delivered < rampHalve*all:
		return verdict{rate: max(s.rate/2, slowestRate), judged: true}
	case 100*s.delivered >= rampDouble*all && 2*all >= s.allowed():
		return verdict{rate: max(min(2*s.rate, s.ceiling), s.rate), judged: true}
	default:
		return verdict{rate: s.rate, judged: true}
	}
}

// allowed is how many the rate allows in the time of the sample.
func (s sample) allowed() int64 { return int64(s.over.Minutes() * float64(s.rate)) }

// Pacing of releases.
const (
	releaseEvery = time.Second // at rates above one a second, several at a time
	releaseLate  = 2 * releaseEvery
	releaseMost  = 2000
)

// interval is the time between two releases at a rate per minute.
func interval(rate int) time.Duration { return time.Minute / time.Duration(max(rate, slowestRate)) }

// due is how many releases are due now when the next one was due at a time: timers
// are late by a second or so, which is made up for, but not for more.
func due(next, now time.Time, rate int) int {
	if now.Before(next) {
		return 0
	}
	late := min(now.Sub(next), releaseLate)
	return min(1+int(late/interval(rate)), releaseMost)
}

// following is when the release after n more is due.
func following(next, now time.Time, rate, n int) time.Time {
	if behind := now.Add(-releaseLate); next.Before(behind) {
		next = behind
	}
	return next.Add(time.Duration(n) * interval(rate))
}

// gather begins a new sample for the ramp.
func (r *replay) gather(now time.Time) {
	r.in.Window = ReplayWindow{Since: now, Delivered: r.st.Delivered, Failed: r.st.Failed}
}

// judge keeps the replay below what the receiver takes, and makes it faster or slower
// by the outcomes of first attempts.
func (r *replay) judge(now time.Time) {
	if !r.releases() {
		return
	}
	if r.st.Rate > r.st.Ceiling {
		r.in.ChangeTo = r.st.Ceiling
	}
	if !r.st.Ramp {
		return
	}
	s := sample{
		rate: r.st.Rate, ceiling: r.st.Ceiling, over: now.Sub(r.in.Window.Since),
		delivered: r.st.Delivered - r.in.Window.Delivered, failed: r.st.Failed - r.in.Window.Failed,
	}
	v := s.judge()
	if v.pause {
		r.in.PauseFor = fmt.Sprintf("paused: %d of %d first attempts failed", s.failed, s.delivered+s.failed)
	}
	if v.rate != r.st.Rate {
		r.in.ChangeTo = v.rate
	}
	if v.judged {
		r.gather(now)
	}
}
