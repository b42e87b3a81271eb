package chart

import (
	"math"
	"strings"
	"time"
)

// timeAxis maps times to positions.
type timeAxis struct {
	begin, end  time.Time
	left, right float64
}

// newTimeAxis makes an axis that covers at least a second.
func newTimeAxis(begin, end time.Time) timeAxis {
	if end.Sub(begin) < time.Second {
		end = begin.Add(time.Second)
	}
	return timeAxis{begin: begin, end: end, left: left, right: right}
}

// at is the position of a time; one outside is at the end that is nearer.
func (a timeAxis) at(t time.Time) float64 {
	share := float64(t.Sub(a.begin)) / float64(a.end.Sub(a.begin))
	return a.left + upTo(share, 1)*(a.right-a.left)
}

// maxTicks bounds the labels of an axis: on a phone no more have room.
const maxTicks = 5

// tickSteps are the distances of ticks that are easy to read.
func tickSteps() []time.Duration {
	return []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 4 * day, 7 * day, 14 * day, 30 * day, 90 * day,
	}
}

// tickStep is the distance of the ticks of an axis.
func tickStep(span time.Duration) time.Duration {
	for _, s := range tickSteps() {
		if span/s < maxTicks {
			return s
		}
	}
	return span/(maxTicks-1) + day // of an axis of years
}

// ticks are the times that are labelled, and how.
func (a timeAxis) ticks() (times []time.Time, layout string) {
	step := tickStep(a.end.Sub(a.begin))
	switch {
	case step < time.Minute:
		layout = "15:04:05"
	case step < day:
		layout = "15:04"
	case step <= 90*day:
		layout = "2 Jan"
	default:
		layout = "Jan 2006"
	}
	for t := a.begin.UTC().Truncate(step); !t.After(a.end) && len(times) <= maxTicks; t = t.Add(step) {
		if !t.Before(a.begin) {
			times = append(times, t)
		}
	}
	return times, layout
}

// drawTimeAxis draws grid lines between two heights and the times below. The first time of day says that they are UTC.
func (d *drawing) drawTimeAxis(a timeAxis, top, bottom float64) {
	times, layout := a.ticks()
	var labels row
	zone := " UTC"
	for _, t := range times {
		x := a.at(t)
		d.line("grid", x, top, x, bottom)
		text := t.Format(layout)
		ofDay := strings.HasPrefix(layout, "15:04")
		if layout == "15:04" && t.Hour() == 0 && t.Minute() == 0 {
			text, ofDay = t.Format("2 Jan"), false
		}
		if ofDay {
			text += zone
		}
		if labels.take(x, text) {
			d.text("tick", x, bottom+14, text)
			if ofDay {
				zone = ""
			}
		}
	}
}

// niceMax is the smallest of 1, 2, 2.5 and 5 × a power of ten that is not below a value; at least 1.
func niceMax(f float64) float64 {
	if !(f > 1) || math.IsInf(f, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(f)))
	for _, step := range []float64{1, 2, 2.5, 5} {
		if step*power >= f {
			return step * power
		}
	}
	return 10 * power
}
