package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Replay is how far a replay has come.
type Replay struct {
	Total     int64 // -1 if not known
	Released  int64
	Skipped   int64
	Delivered int64
	Failed    int64

	Rate  int // deliveries per minute, now
	Asked int // deliveries per minute, at most
	Ramp  bool
	Open  bool // it may still release deliveries
}

// Heights in the chart of a replay, in pixels.
const (
	replayHeight = 46
	rampHeight   = 66
)

// parts are what the bar consists of, in its order.
func (r *Replay) parts() (names []string, tones []Tone, counts []int64) {
	waiting := max(r.Released-r.Delivered-r.Failed, 0)
	names = []string{"delivered", "not at first", "under way", "skipped", "to come"}
	tones = []Tone{ToneGood, ToneBad, ToneRetry, ToneWait, ToneQuiet}
	rest := int64(0)
	if r.Total >= 0 {
		rest = max(r.Total-r.Released-r.Skipped, 0)
	}
	return names, tones, []int64{max(r.Delivered, 0), max(r.Failed, 0), waiting, max(r.Skipped, 0), rest}
}

// DrawProgress draws how much of the set was released, and what came of it at the first attempt.
func DrawProgress(r Replay) template.HTML {
	names, tones, counts := r.parts()
	sum := 0.0
	said := make([]string, 0, len(names))
	for i, n := range counts {
		sum += float64(n)
		if n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, names[i]))
		}
	}
	words := strings.Join(said, ", ") + "."
	switch {
	case sum == 0:
		words = "Nothing to send again."
	case r.Total < 0:
		words = strings.TrimSuffix(words, ".") + "; how many are to come is not known yet."
	}
	d := draw("progress", "Progress of the replay", words, replayHeight)
	d.rect("track-bar", left, 6, right-left, 16, "")
	x := left
	var labels row
	for i, n := range counts {
		if n == 0 || sum == 0 {
			continue
		}
		width := float64(n) / sum * (right - left)
		d.rect("bar "+tones[i].class(), x, 6, width, 16, said[0])
		said = said[1:]
		if text := fmt.Sprintf("%d %s", n, names[i]); labels.take(x+width/2, text) {
			d.text("tick", x+width/2, 38, text)
		}
		x += width
	}
	return d.html()
}

// DrawRamp draws the rate of a replay on the way to the one that was asked for. Each mark is twice the one before: a
// replay with a ramp doubles its rate each minute while its deliveries succeed.
func DrawRamp(r Replay) template.HTML {
	asked, rate := float64(max(r.Asked, 1)), float64(max(r.Rate, 0))
	top := math.Max(asked, rate)
	steps := max(int(math.Ceil(math.Log2(top))), 1)
	first := max(0, steps-7) // eight marks at most have room
	at := func(perMinute float64) float64 {
		return left + upTo((math.Log2(math.Max(perMinute, 1))-float64(first))/float64(steps-first), 1)*(right-left-2)
	}
	words := fmt.Sprintf("Sending %d a minute of the %d a minute asked for.", r.Rate, r.Asked)
	if !r.Open {
		words = fmt.Sprintf("Ended at %d a minute of the %d a minute asked for.", r.Rate, r.Asked)
	}
	if r.Ramp {
		words += " With the ramp, the rate doubles each minute while at least 95 % of the first attempts succeed, and halves below 80 %."
	}
	d := draw("ramp", "Rate of the replay", words, rampHeight)
	var labels row
	for i := first; i <= steps; i++ {
		mark := math.Pow(2, float64(i))
		x := at(mark)
		height := 4 + 26*float64(i-first)/float64(max(steps-first, 1))
		class := "step"
		if mark > rate {
			class = "step ahead"
		}
		d.rect(class, x, 46-height, 2, height, "")
		if text := short(mark); labels.take(x, text) {
			d.text("tick", x, 60, text)
		}
	}
	var above row
	x := at(rate)
	d.line("now", x, 16, x, 48)
	text := fmt.Sprintf("now %d/min", r.Rate)
	above.take(x, text)
	d.text("label", x, 12, text)
	if x, text := at(asked), fmt.Sprintf("asked %d/min", r.Asked); r.Asked != r.Rate {
		d.line("give-up", x, 16, x, 48)
		if above.take(x, text) {
			d.text("label", x, 12, text)
		}
	}
	return d.html()
}
