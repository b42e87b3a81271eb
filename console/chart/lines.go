package chart

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// Lines are durations over time, such as latencies.
type Lines struct {
	Title  string
	Begin  time.Time
	Step   time.Duration
	Series []Durations
}

// Durations is a row of durations over time. A negative one is a gap: nothing is known of that step.
type Durations struct {
	Name   string
	Tone   Tone
	Values []time.Duration
}

// maxPoints bounds the points of a curve; of more, the largest of those that fall together is shown.
const maxPoints = 240

// DrawLines draws a curve for each series.
func DrawLines(l Lines) template.HTML {
	steps, longest := 0, time.Duration(0)
	for _, s := range l.Series {
		steps = max(steps, len(s.Values))
		for _, v := range s.Values {
			longest = max(longest, v)
		}
	}
	top := niceDuration(longest)
	step := max(l.Step, time.Millisecond)
	axis := newTimeAxis(l.Begin, l.Begin.Add(step*time.Duration(max(steps, 1))))
	d := draw("lines", l.Title, l.words(), chartHeight)
	d.drawTimeAxis(axis, plotTop, plotBottom)
	keys := make([]key, len(l.Series))
	for i, s := range l.Series {
		keys[i] = key{s.Name, s.Tone}
	}
	d.drawKeys(keyLines(keys))
	d.drawScale(plotTop, Span(top), Span(top/2))
	// The curves are stretched with the page: 1000 wide, a unit high for each pixel.
	d.svg.WriteString(`<svg x="` + num(left) + `%" y="` + num(plotTop) + `" width="` + num(right-left) + `%" height="` + num(plotHeight) +
		`" viewBox="0 0 1000 ` + num(plotHeight) + `" preserveAspectRatio="none">`)
	for _, s := range l.Series {
		if path := curve(s.Values, steps, top); path != "" {
			d.svg.WriteString(`<path class="curve ` + s.Tone.class() + `" vector-effect="non-scaling-stroke" d="` + path + `"/>`)
		}
	}
	d.svg.WriteString("</svg>")
	return d.html()
}

// curve is the path of a series, interrupted at gaps. A point between gaps is a dot.
func curve(values []time.Duration, steps int, top time.Duration) string {
	var path strings.Builder
	merge := max(1, (len(values)+maxPoints-1)/maxPoints)
	drawn := false
	for i := 0; i < len(values); i += merge {
		value := time.Duration(-1)
		for _, v := range values[i:min(i+merge, len(values))] {
			value = max(value, v)
		}
		if value < 0 {
			drawn = false
			continue
		}
		x := (float64(i) + float64(merge)/2) / float64(steps) * 1000
		y := plotHeight * (1 - float64(min(value, top))/float64(top))
		command := "L"
		if !drawn {
			command = "M"
		}
		path.WriteString(command + num(upTo(x, 1000)) + " " + num(upTo(y, plotHeight)))
		if !drawn {
			path.WriteString("h.1")
		}
		drawn = true
	}
	return path.String()
}

// niceDuration is a round duration that is not below d.
func niceDuration(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour} {
		for _, n := range []int64{1, 2, 5, 10, 20, 30, 50, 100, 200, 500} {
			if unit >= time.Second && n > 50 || unit >= time.Minute && n > 30 {
				break
			}
			if nice := time.Duration(n * int64(unit)); nice >= d {
				return nice
			}
		}
	}
	return max(d, time.Millisecond)
}

// words is the text alternative: the range of each series and its last value.
func (l *Lines) words() string {
	said := make([]string, 0, len(l.Series))
	for _, s := range l.Series {
		shortest, longest, last := time.Duration(-1), time.Duration(-1), time.Duration(-1)
		for _, v := range s.Values {
			if v < 0 {
				continue
			}
			if shortest < 0 || v < shortest {
				shortest = v
			}
			longest, last = max(longest, v), v
		}
		if last < 0 {
			said = append(said, s.Name+": nothing is known")
			continue
		}
		said = append(said, fmt.Sprintf("%s: from %s to %s, last %s", s.Name, Span(shortest), Span(longest), Span(last)))
	}
	if len(said) == 0 {
		return "Nothing to show."
	}
	return fmt.Sprintf("Since %s. %s.", l.Begin.UTC().Format("2 Jan 15:04 UTC"), strings.Join(said, "; "))
}
