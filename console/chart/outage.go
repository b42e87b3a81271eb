package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// Outage is what a retry policy makes of a receiver that answers nothing but 503 for some time: of a delivery that is
// accepted when the outage begins.
type Outage struct {
	Policy retry.Policy
	Down   time.Duration

	// Share is the part of the deliveries that arrive, of many with different jitter: 0 to 1.
	Share float64
	// Earliest, Usual and Latest are when they arrive, counted from the start of the outage; 0 if none does.
	Earliest, Usual, Latest time.Duration
	// Failed are the times of the failed attempts of a usual delivery, and Attempts how many attempts it takes in
	// all.
	Failed   []time.Duration
	Attempts int
	// GivenUp is when a usual delivery is given up that does not arrive; 0 if it arrives.
	GivenUp time.Duration
}

// Bounds of the computation.
const (
	outageSamples = 101 // odd, so that there is one in the middle
	maxDown       = retry.LongestGiveUp
)

// SimulateOutage computes what happens to deliveries that are accepted when an outage begins. It asks the policy after
// each attempt, as a delivery does, with many sequences of random numbers that are always the same. It does not know of
// the circuit breaker, which may hold attempts back for up to ten minutes more.
func SimulateOutage(p retry.Policy, down time.Duration) Outage {
	o := Outage{Policy: p, Down: min(max(down, 0), maxDown)}
	if p.IsZero() {
		o.Policy = retry.Default()
	}
	type course struct {
		failed []time.Duration
		end    time.Duration
		given  bool
	}
	courses := make([]course, 0, outageSamples)
	arrived := 0
	for i := range outageSamples {
		failed, end, given := o.course(i)
		courses = append(courses, course{failed, end, given})
		if !given {
			arrived++
		}
	}
	// Those that arrive come first, in the order of their arrival.
	slices.SortStableFunc(courses, func(a, b course) int {
		switch {
		case a.given == b.given:
			return cmp.Compare(a.end, b.end)
		case a.given:
			return 1
		}
		return -1
	})
	o.Share = float64(arrived) / outageSamples
	if arrived > 0 {
		o.Earliest, o.Usual, o.Latest = courses[0].end, courses[arrived/2].end, courses[arrived-1].end
	}
	usual := courses[outageSamples/2]
	if arrived > outageSamples/2 {
		usual = courses[arrived/2]
	}
	o.Failed, o.Attempts = usual.failed, len(usual.failed)
	if usual.given {
		o.GivenUp = usual.end
	} else {
		o.Attempts++
	}
	return o
}

// course is one delivery: the times of its failed attempts, and when it arrives or is given up.
func (o *Outage) course(sample int) (failed []time.Duration, end time.Duration, given bool) {
	begin := time.Unix(0, 0).UTC()
	at, previous := time.Duration(0), time.Duration(0)
	for at < o.Down {
		failed = append(failed, at)
		verdict := o.Policy.Next(retry.Progress{
			Attempts: len(failed), Previous: previous, Now: begin.Add(at), GiveUpAt: begin.Add(o.Policy.GiveUpAfter),
			Outcome: retry.Outcome{Decision: retry.Retry, Reason: retry.HTTPReason(503), Status: 503},
			Random:  retry.Random(len(failed), strconv.Itoa(sample)),
		})
		if verdict.Action != retry.Wait || len(failed) >= retry.MostAttempts {
			return failed, at, true
		}
		previous = verdict.Delay
		at += max(verdict.Delay, time.Millisecond)
	}
	return failed, at, false
}

// Summary says what happens, in sentences.
func (o *Outage) Summary() string {
	down := "If the receiver is down for " + Span(o.Down) + ", "
	switch o.Share {
	case 1:
		text := down + "every delivery arrives, usually " + Span(o.Usual-o.Down) + " after the receiver is back"
		if o.Earliest != o.Latest {
			text += " (from " + Span(o.Earliest-o.Down) + " to " + Span(o.Latest-o.Down) + ")"
		}
		return text + fmt.Sprintf(", with attempt %d.", o.Attempts)
	case 0:
		return down + fmt.Sprintf("no delivery that is accepted when the outage begins arrives: "+
			"each is given up after %s, %s after the start of the outage, and becomes a dead letter.",
			attemptCount(o.Attempts), Span(o.GivenUp))
	}
	return down + fmt.Sprintf("about %.0f %% of the deliveries that are accepted when the outage begins arrive, "+
		"the last %s after the receiver is back; the others become dead letters.",
		100*o.Share, Span(o.Latest-o.Down))
}

// Heights in the chart of an outage, in pixels.
const (
	outageTrack  = 38.0
	outageBottom = 58.0
	outageHeight = 80
)

// Draw draws the outage to scale with the attempts of a usual delivery.
func (o *Outage) Draw() template.HTML {
	begin := time.Unix(0, 0).UTC()
	last := max(o.Down, o.Usual, o.Latest, o.GivenUp)
	axis := newTimeAxis(begin, begin.Add(last+last/10))
	at := func(since time.Duration) float64 { return axis.at(begin.Add(since)) }
	d := draw("outage", "A receiver that is down for "+Span(o.Down), o.words(), outageHeight)
	d.rect("down", at(0), outageTrack-14, at(o.Down)-at(0), 28, "")
	d.line("track", left, outageTrack, right, outageTrack)
	var above row
	if down := "down for " + Span(o.Down); above.take((at(0)+at(o.Down))/2, down) {
		d.text("label", (at(0)+at(o.Down))/2, 14, down)
	}
	if o.Latest > o.Earliest {
		d.rect("window", at(o.Earliest), outageTrack-5, at(o.Latest)-at(o.Earliest), 10, "arrives from "+Span(o.Earliest)+" to "+Span(o.Latest))
	}
	for i, since := range o.Failed[:min(len(o.Failed), maxMarks)] {
		d.dot("attempt c-retry", at(since), outageTrack, dotRadius, fmt.Sprintf("attempt %d fails after %s", i+1, Span(since)))
	}
	if o.Usual > 0 {
		d.dot("attempt c-good", at(o.Usual), outageTrack, dotRadius, "delivered after "+Span(o.Usual))
		if above.take(at(o.Usual), "delivered") {
			d.text("label", at(o.Usual), 14, "delivered")
		}
	}
	if o.GivenUp > 0 {
		x := at(o.GivenUp)
		d.line("give-up", x, outageTrack-14, x, outageBottom)
		if above.take(x, "given up") {
			d.text("label", x, 14, "given up")
		}
	}
	d.drawElapsed(last+last/10, at)
	return d.html()
}

// drawElapsed labels an axis of elapsed time.
func (d *drawing) drawElapsed(last time.Duration, at func(time.Duration) float64) {
	var labels row
	step := tickStep(last)
	for since := time.Duration(0); since <= last; since += step {
		x := at(since)
		d.line("grid", x, outageTrack+14, x, outageBottom)
		if text := Span(since); since > 0 && labels.take(x, text) {
			d.text("tick", x, outageBottom+14, text)
		}
	}
}

// words is the text alternative.
func (o *Outage) words() string {
	said := make([]string, 0, maxTold)
	for i, since := range o.Failed[:min(len(o.Failed), maxTold)] {
		said = append(said, fmt.Sprintf("attempt %d after %s fails", i+1, Span(since)))
	}
	if more := len(o.Failed) - maxTold; more > 0 {
		said = append(said, fmt.Sprintf("%d more fail", more))
	}
	if o.Usual > 0 && o.GivenUp == 0 {
		said = append(said, fmt.Sprintf("attempt %d after %s is delivered", o.Attempts, Span(o.Usual)))
	}
	return o.Summary() + " A usual delivery: " + strings.Join(said, "; ") + "."
}
