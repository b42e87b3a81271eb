package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The colours have medium brightness and are visible on a white and on a dark page, so the
// picture needs no background and no second version.
const (
	colourText    = "#787878"
	colourFailure = "#787878" // nearly transparent
	colourLimit   = "#2e8b57"
)

// colours are the colours of the curves.
func colours() []string { return []string{"#4a90d9", "#d1480f"} }

// Sizes in pixels.
const (
	width   = 760
	left    = 44
	right   = width - 16
	top     = 44
	bottom  = 300
	height  = bottom + 44
	headTop = 20
)

// picture shows arrivals per second over time, with the failure.
type picture struct {
	from, until time.Duration // of the failure
	usual       float64       // arrivals per second before
	curves      []curve
}

// draw returns an SVG.
func (p picture) draw() string {
	seconds, most := 1, int(2*p.usual)
	for _, c := range p.curves {
		seconds = max(seconds, len(c.Counts))
		most = max(most, busiest(c.Counts))
	}
	x := func(s float64) float64 { return left + s/float64(seconds)*(right-left) }
	// The scale is a square root, so that small values are visible and large ones fit.
	y := func(n float64) float64 { return bottom - math.Sqrt(n/float64(most))*(bottom-top) }

	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-labelledby="recovery-title recovery-desc" font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n",
		width, height, width, height, colourText)
	svg.WriteString("<title id=\"recovery-title\">Requests per second at a receiver that fails and returns</title>\n")
	fmt.Fprintf(&svg, "<desc id=\"recovery-desc\">%s</desc>\n", p.describe())
	begin, end := x(p.from.Seconds()), x(p.until.Seconds())
	fmt.Fprintf(&svg, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.15"/>`+"\n", begin, top, end-begin, bottom-top, colourFailure)
	fmt.Fprintf(&svg, `<text x="%.1f" y="%d" text-anchor="middle">answers 503</text>`+"\n", (begin+end)/2, top+14)
	for _, n := range marks(most) {
		fmt.Fprintf(&svg, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-opacity="0.4" stroke-width="0.5"/>`+"\n",
			left, y(n), right, y(n), colourText)
		fmt.Fprintf(&svg, `<text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left-6, y(n)+4, n)
	}
	for s := 0; s <= seconds; s += max(10, (seconds/120)*10) {
		fmt.Fprintf(&svg, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(float64(s)), bottom+16, s)
	}
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="middle">seconds since the beginning</text>`+"\n", (left+right)/2, bottom+34)
	limit := y(2 * p.usual)
	fmt.Fprintf(&svg, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-dasharray="4 3"/>`+"\n", left, limit, right, limit, colourLimit)
	for i, c := range p.curves {
		colour := colours()[i%len(colours())]
		fmt.Fprintf(&svg, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colour, points(c.Counts, x, y))
		fmt.Fprintf(&svg, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/>`+"\n", left+170*i, headTop-4, left+170*i+20, headTop-4, colour)
		fmt.Fprintf(&svg, `<text x="%d" y="%d">%s</text>`+"\n", left+170*i+26, headTop, c.Name)
	}
	legend := left + 170*len(p.curves)
	fmt.Fprintf(&svg, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-dasharray="4 3"/>`+"\n", legend, headTop-4, legend+20, headTop-4, colourLimit)
	fmt.Fprintf(&svg, `<text x="%d" y="%d">twice the earlier rate</text>`+"\n", legend+26, headTop)
	svg.WriteString("</svg>\n")
	return svg.String()
}

// describe describes the picture in words.
func (p picture) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%g events per second for one endpoint, whose receiver answers 503 from second %.0f to second %.0f",
		p.usual, p.from.Seconds(), p.until.Seconds())
	for _, c := range p.curves {
		during := c.Counts[min(len(c.Counts), int(p.from.Seconds())):min(len(c.Counts), int(p.until.Seconds()))]
		after := c.Counts[min(len(c.Counts), int(p.until.Seconds())):]
		fmt.Fprintf(&text, "; %s: at most %d requests in a second while it fails, at most %d after its return", c.Name, busiest(during), busiest(after))
	}
	return text.String() + "."
}

// marks returns round numbers up to the maximum.
func marks(most int) []float64 {
	var all []float64
	for _, n := range []float64{1, 10, 50, 100, 200, 500, 1000, 2000, 5000} {
		if n <= float64(most) {
			all = append(all, n)
		}
	}
	return all
}

// points returns the points of a polyline, each in the middle of its second.
func points(counts []int, x, y func(float64) float64) string {
	all := make([]string, 0, len(counts))
	for s, n := range counts {
		all = append(all, fmt.Sprintf("%.1f,%.1f", x(float64(s)+0.5), y(float64(n))))
	}
	return strings.Join(slices.Clip(all), " ")
}
