package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// The colours have medium brightness, so that they are visible on light and dark pages and a
// chart needs no background and no second version. The test checks their contrast.
const (
	colourText = "#787878"
	colourGrid = "#787878" // thin and half transparent
	colourBand = "#4a90d9"
	colourEnd  = "#d1480f"
	colourDot  = "#ffffff" // with an outline, on a bar
	colourRim  = "#1f5fa8"
)

// The dimensions, in pixels.
const (
	width     = 760
	left      = 40 // start of the axis
	right     = width - 20
	top       = 62 // of the first row
	rowHeight = 18
	barHeight = 10
	below     = 44 // height of the axis with its labels
)

// The axis is logarithmic and the same in all charts: from half a second, which also
// represents everything earlier, to 100 hours.
const (
	axisBegin = 500 * time.Millisecond
	axisEnd   = 100 * time.Hour
)

// axisPosition returns the position of a time on the axis.
func axisPosition(d time.Duration) float64 {
	share := math.Log(float64(max(d, axisBegin))/float64(axisBegin)) / math.Log(float64(axisEnd)/float64(axisBegin))
	return left + share*(right-left)
}

// picture draws a chart of a preset's attempts, one per row, from retry.Preview.
func picture(preset retry.Preset) string {
	attempts := retry.Preview(preset.Policy)
	bottom := top + rowHeight*len(attempts)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="%[5]s-title %[5]s-desc" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="%[6]s">`+"\n", width, bottom+below, width, bottom+below, preset.Name, colourText)
	fmt.Fprintf(&svg, "<title id=\"%s-title\">Retry policy %s: when its attempts take place</title>\n", preset.Name, preset.Name)
	fmt.Fprintf(&svg, "<desc id=\"%s-desc\">%s</desc>\n", preset.Name, describe(preset.Policy, attempts))
	drawHead(&svg, preset)
	drawAxis(&svg, bottom)
	drawEnd(&svg, preset.Policy.GiveUpAfter, bottom)
	for i, a := range attempts {
		drawAttempt(&svg, a, top+rowHeight*i+rowHeight/2)
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// describe is the text alternative of the chart.
func describe(p retry.Policy, attempts []retry.PreviewAttempt) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Delays: %s. Jitter: %s. At most %d attempts within %s. Attempt 1 at once",
		delays(p), jitter(p), p.MaxAttempts, retry.FormatDuration(p.GiveUpAfter))
	for _, a := range attempts[1:] {
		fmt.Fprintf(&text, "; attempt %d between %s and %s", a.Number, retry.FormatDuration(a.Earliest), retry.FormatDuration(a.Latest))
		if a.Expected {
			text.WriteString(", without jitter at " + retry.FormatDuration(a.Nominal))
		} else {
			text.WriteString(", only after short delays")
		}
	}
	return text.String() + "."
}

// drawHead draws the title and the legend.
func drawHead(svg *strings.Builder, preset retry.Preset) {
	fmt.Fprintf(svg, `<text x="%d" y="18" font-size="14"><tspan font-weight="bold">%s</tspan> · %s · jitter %s</text>`+"\n",
		left, preset.Name, delays(preset.Policy), jitter(preset.Policy))
	const y = 38
	drawBar(svg, left, left+24, y, true)
	drawDot(svg, left+12, y)
	fmt.Fprintf(svg, `<text x="%d" y="%d">with jitter; the dot without</text>`+"\n", left+32, y+4)
	drawBar(svg, left+210, left+234, y, false)
	fmt.Fprintf(svg, `<text x="%d" y="%d">only after short delays</text>`+"\n", left+242, y+4)
	drawTail(svg, left+390, left+414, y)
	fmt.Fprintf(svg, `<text x="%d" y="%d">as late as this if every answer is 429</text>`+"\n", left+422, y+4)
}

func drawAxis(svg *strings.Builder, bottom int) {
	for _, mark := range []time.Duration{
		time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 72 * time.Hour,
	} {
		x := axisPosition(mark)
		fmt.Fprintf(svg, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-opacity="0.4" stroke-width="0.5"/>`+"\n", x, top, x, bottom, colourGrid)
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, bottom+15, retry.FormatDuration(mark))
	}
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="middle">0</text>`+"\n", left, bottom+15)
	fmt.Fprintf(svg, `<text x="2" y="%d">attempt</text>`+"\n", top-6)
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="middle">time since the first attempt, logarithmic</text>`+"\n", (left+right)/2, bottom+34)
}

// drawEnd marks the give-up time.
func drawEnd(svg *strings.Builder, giveUp time.Duration, bottom int) {
	x := axisPosition(giveUp)
	fmt.Fprintf(svg, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="1.5" stroke-dasharray="4 3"/>`+"\n", x, top-2, x, bottom, colourEnd)
	fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="end">given up after %s</text>`+"\n", min(x+40, right+16), top-6, retry.FormatDuration(giveUp))
}

// drawAttempt draws one row: the range from the earliest to the latest time, and the nominal time.
func drawAttempt(svg *strings.Builder, a retry.PreviewAttempt, y int) {
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="end">%d</text>`+"\n", left-12, y+4, a.Number)
	begin, end, tail := axisPosition(a.Earliest), axisPosition(a.Latest), axisPosition(a.LatestAfter429)
	if tail > end {
		drawTail(svg, end, tail, y)
	}
	drawBar(svg, begin, max(end, begin+2), y, a.Expected)
	if a.Expected {
		drawDot(svg, axisPosition(a.Nominal), y)
	}
}

func drawBar(svg *strings.Builder, begin, end float64, y int, filled bool) {
	style := `fill="` + colourBand + `"`
	if !filled {
		style = `fill="none" stroke="` + colourBand + `" stroke-dasharray="3 2"`
	}
	fmt.Fprintf(svg, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" %s/>`+"\n", begin, y-barHeight/2, end-begin, barHeight, style)
}

func drawDot(svg *strings.Builder, x float64, y int) {
	fmt.Fprintf(svg, `<circle cx="%.1f" cy="%d" r="3" fill="%s" stroke="%s" stroke-width="1.5"/>`+"\n", x, y, colourDot, colourRim)
}

func drawTail(svg *strings.Builder, begin, end float64, y int) {
	fmt.Fprintf(svg, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-width="2"/>`+"\n", begin, y, end, y, colourBand)
}
