package chart

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// Timeline is one delivery over time.
type Timeline struct {
	Now      time.Time
	Accepted time.Time
	Attempts []Attempt // in their order
	Held     Held
	Next     time.Time // of the next attempt; zero for none
	GiveUp   time.Time // zero for none
	Ended    time.Time // zero while the delivery is open
	// End is how the delivery ended: "delivered", "dead letter". It is shown at Ended.
	End string
}

// Attempt is one request.
type Attempt struct {
	Number   int
	At       time.Time
	Took     time.Duration
	Decision retry.Decision
	Result   string        // what came back: "503", "timeout"
	Delay    time.Duration // until the next attempt; 0 for none
	Why      string        // of the delay: "backoff", "Retry-After"; "" for none
}

// Held is a wait for something other than the next attempt, until now or until the delivery's end. Without a Why
// there is none.
type Held struct {
	Since time.Time
	Why   string
}

// wait is a time in which the delivery waits, as it is drawn.
type wait struct {
	from, to time.Time
	why      string
}

// Heights in the timeline, in pixels.
const (
	timelineLabels = 14.0 // base line of what stands above the marks
	timelineTrack  = 32.0 // middle of the track
	timelineWhy    = 54.0 // base line of the reasons
	timelineBottom = 62.0 // of the grid
	timelineHeight = 84
	dotRadius      = 5.0
)

// maxMarks bounds the attempts that are drawn, and maxTold those that are described one by one.
const (
	maxMarks = 200
	maxTold  = 12
)

// DrawTimeline draws a delivery to scale: its attempts, its waits with their reasons, the next attempt and the give-up
// time. A give-up time that is far beyond everything else is named at the right end, behind a break of the axis.
func DrawTimeline(t Timeline) template.HTML {
	end, giveUpDrawn := t.extent()
	axis := newTimeAxis(t.begin(), end)
	if !giveUpDrawn {
		axis.right = right - 6
	}
	d := draw("timeline", "Timeline of the delivery", t.words(), timelineHeight)
	d.drawTimeAxis(axis, timelineTrack-14, timelineBottom)
	d.line("track", axis.left, timelineTrack, axis.right, timelineTrack)
	var above, below row
	t.drawEnds(d, axis, giveUpDrawn, &above, &below)
	t.drawWaits(d, axis, &below)
	t.drawAttempts(d, axis, &above)
	return d.html()
}

// begin is the earliest time that is known.
func (t *Timeline) begin() time.Time {
	begin := t.Accepted
	for _, a := range t.Attempts {
		if begin.IsZero() || a.At.Before(begin) {
			begin = a.At
		}
	}
	if begin.IsZero() {
		return t.Now
	}
	return begin
}

// extent is the end of the axis, and whether the give-up time is on it: that is so while the rest takes a quarter of
// the axis at least.
func (t *Timeline) extent() (end time.Time, giveUpDrawn bool) {
	end = t.Ended
	if t.Ended.IsZero() {
		end = t.Now
	}
	later := func(at time.Time) {
		if at.After(end) {
			end = at
		}
	}
	later(t.Next)
	for _, a := range t.Attempts {
		later(a.At.Add(max(a.Took, 0)))
	}
	begin := t.begin()
	if t.GiveUp.IsZero() || !t.Ended.IsZero() {
		return end, true
	}
	if !t.GiveUp.After(end) || t.GiveUp.Sub(begin)/4 <= end.Sub(begin) {
		later(t.GiveUp)
		return end, true
	}
	return end, false
}

// drawEnds draws the present, the end, the next attempt and the give-up time.
func (t *Timeline) drawEnds(d *drawing, axis timeAxis, giveUpDrawn bool, above, below *row) {
	const top = timelineTrack - 14
	if t.Ended.IsZero() {
		x := axis.at(t.Now)
		d.line("now", x, top, x, timelineBottom)
		if above.take(x, "now") {
			d.text("label", x, timelineLabels, "now")
		}
	} else if t.End != "" {
		x := axis.at(t.Ended)
		d.line("now", x, top, x, timelineBottom)
		if above.take(x, t.End) {
			d.text("label", x, timelineLabels, t.End)
		}
	}
	if !t.Next.IsZero() && t.Ended.IsZero() {
		x := axis.at(t.Next)
		d.dot("next", x, timelineTrack, dotRadius, "next attempt at "+clock(t.Next, t.Now))
		if above.take(x, "next") {
			d.text("label", x, timelineLabels, "next")
		}
	}
	if t.GiveUp.IsZero() || !t.Ended.IsZero() {
		return
	}
	if giveUpDrawn {
		x := axis.at(t.GiveUp)
		d.line("give-up", x, top, x, timelineBottom)
		if above.take(x, "give up") {
			d.text("label", x, timelineLabels, "give up")
		}
		return
	}
	d.line("break", axis.right, timelineTrack, right, timelineTrack)
	d.line("give-up", right, top, right, timelineBottom)
	text := "give up at " + clock(t.GiveUp, t.Now)
	if below.take(right-1, text) { // beside the line
		d.text("label", right-1, timelineWhy, text)
	}
}

// drawWaits draws the waits, each with its reason where that has room.
func (t *Timeline) drawWaits(d *drawing, axis timeAxis, below *row) {
	for _, w := range t.waits() {
		from, to := axis.at(w.from), axis.at(w.to)
		d.rect("wait", from, timelineTrack-4, to-from, 8, w.why+" for "+Span(w.to.Sub(w.from)))
		middle := (from + to) / 2
		if width := charWidth * float64(len([]rune(w.why))); width < to-from && below.take(middle, w.why) {
			d.text("why", middle, timelineWhy, w.why)
		}
	}
}

// waits are the waits after attempts, and that of a held delivery.
func (t *Timeline) waits() []wait {
	var all []wait
	for i, a := range t.Attempts[:min(len(t.Attempts), maxMarks)] {
		if a.Why == "" || a.Delay <= 0 {
			continue
		}
		from := a.At.Add(max(a.Took, 0))
		to := from.Add(a.Delay)
		switch {
		case i+1 < len(t.Attempts):
			to = t.Attempts[i+1].At
		case !t.Ended.IsZero() && t.Ended.Before(to):
			to = t.Ended
		}
		if to.After(from) {
			all = append(all, wait{from, to, a.Why})
		}
	}
	until := t.Now
	if !t.Ended.IsZero() {
		until = t.Ended
	}
	if t.Held.Why != "" && until.After(t.Held.Since) {
		all = append(all, wait{t.Held.Since, until, t.Held.Why})
	}
	return all
}

// drawAttempts draws a mark for each attempt, the last on top. An attempt that took long is as wide as it took.
func (t *Timeline) drawAttempts(d *drawing, axis timeAxis, above *row) {
	attempts := t.Attempts[max(0, len(t.Attempts)-maxMarks):]
	for _, a := range attempts {
		x, end := axis.at(a.At), axis.at(a.At.Add(max(a.Took, 0)))
		class := "attempt " + decisionTone(a.Decision).class()
		if end-x > 1 {
			d.rect(class, x, timelineTrack-dotRadius, end-x, 2*dotRadius, a.words(t.Now))
			continue
		}
		d.dot(class, x, timelineTrack, dotRadius, a.words(t.Now))
	}
	for _, a := range slices.Backward(attempts) { // the newest is labelled first
		x := axis.at(a.At)
		if above.take(x, a.Result) {
			d.text("label", x, timelineLabels, a.Result)
		}
	}
}

func decisionTone(d retry.Decision) Tone {
	switch d {
	case retry.Delivered:
		return ToneGood
	case retry.Retry:
		return ToneRetry
	case retry.Permanent:
		return ToneBad
	}
	return ToneQuiet
}

// words describes the outcome of an attempt, with the time at which it was known.
func (a *Attempt) words(now time.Time) string {
	return fmt.Sprintf("attempt %d: %s at %s, after %s", a.Number, a.Result, clock(a.At.Add(max(a.Took, 0)), now), Span(a.Took))
}

// words is the text alternative: all that is drawn, in order.
func (t *Timeline) words() string {
	said := []string{"Accepted at " + clock(t.begin(), t.Now)}
	skip := max(0, len(t.Attempts)-maxTold)
	if skip > 0 {
		said = append(said, attemptCount(skip)+" before those that follow")
	}
	for _, a := range t.Attempts[skip:] {
		text := a.words(t.Now)
		if a.Why != "" && a.Delay > 0 {
			text += ", then a wait of " + Span(a.Delay) + " (" + a.Why + ")"
		}
		said = append(said, text)
	}
	if t.Held.Why != "" {
		said = append(said, t.Held.Why+" since "+clock(t.Held.Since, t.Now))
	}
	if !t.Ended.IsZero() {
		said = append(said, strings.TrimSpace(t.End+" at "+clock(t.Ended, t.Now)))
		return strings.Join(said, "; ") + "."
	}
	if !t.Next.IsZero() {
		said = append(said, "next attempt at "+clock(t.Next, t.Now))
	}
	if !t.GiveUp.IsZero() {
		said = append(said, "given up at "+clock(t.GiveUp, t.Now)+" at the latest")
	}
	return strings.Join(said, "; ") + "."
}
