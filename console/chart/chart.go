// Package chart draws what the console shows as pictures: SVG that is part of the page, with classes for
// colours, so that a strict Content-Security-Policy and both themes hold, and a text that says the same in words.
//
// A chart is as wide as its page and has a fixed height. Positions across are percentages and positions down are
// pixels, so that text has the same size on a phone and on a wide screen. Curves, which have no percentages, are
// in an inner picture that is stretched. The package is pure: all times are arguments.
package chart

import (
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Tone is the meaning of a colour.
type Tone uint8

// The tones.
const (
	ToneQuiet Tone = iota // neither good nor bad
	ToneGood
	ToneRetry // failed, and tried again
	ToneBad
	ToneWait
	ToneLink // the others tell apart what none of the above means
	TonePlum
	ToneInk
)

// class is the style sheet's name of a tone.
func (t Tone) class() string {
	switch t {
	case ToneGood:
		return "c-good"
	case ToneRetry:
		return "c-retry"
	case ToneBad:
		return "c-bad"
	case ToneWait:
		return "c-wait"
	case ToneLink:
		return "c-link"
	case TonePlum:
		return "c-plum"
	case ToneInk:
		return "c-ink"
	case ToneQuiet:
	}
	return "c-quiet"
}

// Margins of the drawn area, in percent of the width, so that no mark at an end is cut off.
const (
	left  = 1.5
	right = 98.5
)

// charWidth is the width of a character, in percent, on the narrowest screen, where a chart has about 330 pixels. Labels
// that would overlap there are left out.
const charWidth = 2.0

// drawing is a chart in the making.
type drawing struct {
	svg strings.Builder
}

// draw begins a chart of a height in pixels. The title names it and the description says in words what it shows.
func draw(class, title, description string, height int) *drawing {
	d := &drawing{}
	d.svg.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" class="chart ` + class + `" role="img" width="100%" height="` + strconv.Itoa(height) + `">`)
	d.svg.WriteString("<title>" + html.EscapeString(clean(title)) + "</title><desc>" + html.EscapeString(clean(description)) + "</desc>")
	return d
}

// html ends the chart.
func (d *drawing) html() template.HTML {
	d.svg.WriteString("</svg>")
	return template.HTML(d.svg.String()) //nolint:gosec // numbers, constants, and text that is escaped where it is written
}

// rect draws a rectangle with a text that a pointer shows; "" for none.
func (d *drawing) rect(class string, x, y, width, height float64, hint string) {
	x = upTo(x, 100)
	d.svg.WriteString(`<rect class="` + class + `" x="` + num(x) + `%" y="` + num(y) + `" width="` + num(upTo(width, 100-x)) +
		`%" height="` + num(max(height, 0)) + `"`)
	d.end("rect", hint)
}

func (d *drawing) dot(class string, x, y, radius float64, hint string) {
	d.svg.WriteString(`<circle class="` + class + `" cx="` + num(upTo(x, 100)) + `%" cy="` + num(y) + `" r="` + num(radius) + `"`)
	d.end("circle", hint)
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.svg.WriteString(`<line class="` + class + `" x1="` + num(upTo(x1, 100)) + `%" y1="` + num(y1) +
		`" x2="` + num(upTo(x2, 100)) + `%" y2="` + num(y2) + `"/>`)
}

// end closes an element that may have a hint.
func (d *drawing) end(element, hint string) {
	if hint == "" {
		d.svg.WriteString("/>")
		return
	}
	d.svg.WriteString("><title>" + html.EscapeString(clean(hint)) + "</title></" + element + ">")
}

// text writes a text at a position: after it at the left end, before it at the right end, and else around it.
func (d *drawing) text(class string, x, y float64, text string) {
	anchor, _, _ := place(x, text)
	d.textFrom(class, anchor, x, y, text)
}

// textFrom writes a text with its start, middle or end at a position.
func (d *drawing) textFrom(class, anchor string, x, y float64, text string) {
	d.svg.WriteString(`<text class="` + class + `" x="` + num(upTo(x, 100)) + `%" y="` + num(y) + `" text-anchor="` + anchor + `">` +
		html.EscapeString(clean(text)) + "</text>")
}

// place is how a text stands at a position, and the part of the width that it takes.
func place(x float64, text string) (anchor string, from, to float64) {
	x = upTo(x, 100)
	width := charWidth * float64(len([]rune(text)))
	switch {
	case x-width/2 < 0:
		return "start", x, x + width
	case x+width/2 > 100:
		return "end", x - width, x
	}
	return "middle", x - width/2, x + width/2
}

// row remembers which part of a row of labels is taken.
type row struct {
	taken [][2]float64
}

// take reports whether a text has room at a position, and takes it.
func (r *row) take(x float64, text string) bool {
	_, from, to := place(x, text)
	for _, t := range r.taken {
		if from < t[1]+charWidth && t[0] < to+charWidth {
			return false
		}
	}
	r.taken = append(r.taken, [2]float64{from, to})
	return true
}

// upTo limits a number to 0 to high; what is not a number is 0.
func upTo(f, high float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return min(max(f, 0), high)
}

// num is a number with up to two decimals.
func num(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "0"
	}
	text := strconv.FormatFloat(f, 'f', 2, 64)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	if text == "-0" {
		return "0"
	}
	return text
}

// clean makes a text fit for XML: it has control characters in no form.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
}
