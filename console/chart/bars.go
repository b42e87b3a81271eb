package chart

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// Series is a row of numbers over time.
type Series struct {
	Name   string
	Tone   Tone
	Values []int64 // one for each step
}

// Bars are counts over time, stacked.
type Bars struct {
	Title  string
	Unit   string // of a value in words: "deliveries per minute"
	Begin  time.Time
	Step   time.Duration
	Series []Series // the first is at the bottom
}

// Bounds of charts over time.
const (
	maxColumns  = 60 // of more steps, several share a column, so that a column is wide enough to see and the page stays small
	plotTop     = 24.0
	plotBottom  = 124.0
	plotHeight  = plotBottom - plotTop
	chartHeight = 146
)

// DrawBars draws a column for each step, or for several steps if there are more than 60: then a column is their mean.
func DrawBars(b Bars) template.HTML {
	columns, step := b.columns()
	top := 0.0
	for i := range columns {
		top = max(top, total(columns[i]))
	}
	top = niceMax(top)
	end := b.Begin.Add(step * time.Duration(len(columns)))
	axis := newTimeAxis(b.Begin, end)
	keys := make([]key, len(b.Series))
	for i, s := range b.Series {
		keys[i] = key{s.Name, s.Tone}
	}
	lines := keyLines(keys)
	down := keyHeight * float64(max(len(lines)-1, 0)) // the plot stands below all lines of keys
	bottom := plotBottom + down
	d := draw("bars", b.Title, b.words(step), chartHeight+int(down))
	d.drawTimeAxis(axis, plotTop+down, bottom)
	d.drawScale(plotTop+down, short(top), short(top/2))
	d.drawKeys(lines)
	width := (axis.right - axis.left) / float64(max(len(columns), 1))
	for i, values := range columns {
		x := axis.left + float64(i)*width
		y := bottom
		for s, value := range values {
			height := value / top * plotHeight
			if height < 0.01 {
				continue
			}
			y -= height
			d.rect("bar "+b.Series[s].Tone.class(), x+width*0.08, y, width*0.84, height, "")
		}
	}
	return d.html()
}

// columns merges steps so that there are at most maxColumns. The newest column may have fewer steps than the others.
func (b *Bars) columns() ([][]float64, time.Duration) {
	n := 0
	for _, s := range b.Series {
		n = max(n, len(s.Values))
	}
	merge := max(1, (n+maxColumns-1)/maxColumns)
	columns := make([][]float64, (n+merge-1)/merge)
	for i := range columns {
		columns[i] = make([]float64, len(b.Series))
		for s, series := range b.Series {
			part := series.Values[min(i*merge, len(series.Values)):min((i+1)*merge, len(series.Values))]
			for _, value := range part {
				columns[i][s] += float64(max(value, 0))
			}
			columns[i][s] /= float64(max(len(part), 1))
		}
	}
	return columns, max(b.Step, time.Millisecond) * time.Duration(merge)
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}

// key is the name of a series and its colour.
type key struct {
	name string
	tone Tone
}

// Room for the names of the series.
const (
	keyHeight = 16.0 // of a line, in pixels
	keySquare = 4    // the width of a colour, in characters
	keyLine   = 55   // characters of a line that fit a phone
)

// width is the room of a key, in characters.
func (k key) width() int { return len([]rune(k.name)) + keySquare }

// keyLines divides keys into lines that fit a phone.
func keyLines(all []key) (lines [][]key) {
	used := keyLine
	for _, k := range all {
		if used+k.width() > keyLine {
			lines, used = append(lines, nil), 0
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], k)
		used += k.width()
	}
	return lines
}

// drawKeys writes the names of the series above the chart, with their colours. Each has room by its length.
func (d *drawing) drawKeys(lines [][]key) {
	for i, line := range lines {
		characters := 0
		for _, k := range line {
			characters += k.width()
		}
		each, x, y := (right-left)/float64(max(characters, keyLine)), left, keyHeight*float64(i)
		for _, k := range line {
			d.rect("key "+k.tone.class(), x, y+4, 2.5, 9, "")
			d.textFrom("label", "start", x+3.5, y+13, k.name)
			x += each * float64(k.width())
		}
	}
}

// drawScale draws three grid lines from a height on, and labels the upper two.
func (d *drawing) drawScale(from float64, top, middle string) {
	for i, label := range []string{top, middle, ""} {
		y := from + plotHeight*float64(i)/2
		d.line("grid", left, y, right, y)
		if label != "" {
			d.textFrom("tick", "start", left, y+11, label)
		}
	}
}

// words is the text alternative: the sum, the mean and the peak of each series.
func (b *Bars) words(step time.Duration) string {
	said := make([]string, 0, len(b.Series))
	for _, s := range b.Series {
		sum, peak, at := 0.0, 0.0, 0
		for i, n := range s.Values {
			value := float64(max(n, 0))
			sum += value
			if value > peak {
				peak, at = value, i
			}
		}
		if peak == 0 {
			said = append(said, s.Name+": none")
			continue
		}
		mean := sum / float64(len(s.Values))
		when := b.Begin.Add(max(b.Step, time.Millisecond) * time.Duration(at))
		said = append(said, fmt.Sprintf("%s: %s on average, at most %s at %s", s.Name, short(mean), short(peak), when.UTC().Format("15:04 UTC")))
	}
	if len(said) == 0 {
		return "Nothing to show."
	}
	return fmt.Sprintf("From %s on, a column for each %s, in %s. %s.", b.Begin.UTC().Format("2 Jan 15:04 UTC"), Span(step), b.Unit, strings.Join(said, "; "))
}
