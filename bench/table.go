package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is a column of the main table with one or more figures.
type column struct {
	heads  [2]string
	digits int
	sep    string
	of     []metric
}

func columns() []column {
	return []column{
		{[2]string{"", "deliveries/s"}, 0, "", []metric{deliveriesPerSecond}},
		{[2]string{"of the", "ceiling"}, 2, "", []metric{ofCeiling}},
		{[2]string{"accepted", "events/s"}, 0, "", []metric{acceptedPerSecond}},
		{[2]string{"accepted, ms", "p50 / p95 / p99"}, 1, " / ", []metric{acceptP50, acceptP95, acceptP99}},
		{[2]string{"end to end, ms", "p50 / p95 / p99"}, 1, " / ", []metric{endToEndP50, endToEndP95, endToEndP99}},
		{[2]string{"CPU per delivery, ms", "Go + PostgreSQL"}, 2, " + ", []metric{cpuGo, cpuPostgres}},
		{[2]string{"bench's", "own, ms"}, 2, "", []metric{cpuBench}},
		{[2]string{"RSS", "max, MiB"}, 0, "", []metric{rssMax}},
		{[2]string{"", "lost"}, 0, "", []metric{lost}},
		{[2]string{"", "twice"}, 0, "", []metric{duplicates}},
	}
}

// pageColumns are those of the table of pages.
func pageColumns() []column {
	return []column{
		{[2]string{"a page, ms", "p50 / p95 / p99"}, 1, " / ", []metric{pageP50, pageP95, pageP99}},
		{[2]string{"at most", "KiB"}, 0, "", []metric{pageKiB}},
	}
}

// remark is a figure with a line of its own below the main table.
type remark struct {
	of     metric
	format string
	always bool // also when it is 0
}

func remarks() []remark {
	return []remark{
		{refused, "%.0f times the API responded with 429 or 503, and the event was posted again", false},
		{stillOpen, "%.0f deliveries still waited for an attempt at the timeout", false},
		{drain, "%.2f s from the last 202 to the last arrival", false},
		{ofLoop, "%.1f times the end-to-end p50 of the plain loop at this rate", true},
		{restGo, "%.1f %% of a core at rest: Go", true},
		{restPostgres, "%.1f %% of a core at rest: PostgreSQL", true},
		{rssRest, "%.0f MiB RSS at rest: Go", true},
		{fillTime, "%.1f s until all waited", true},
		{settleTime, "%.0f s until it was calm", true},
		{acceptRatio, "%.2f of the accepted events/s of the empty system", true},
		{throughputRatio, "%.2f of the deliveries/s of the empty system", true},
		{latencyRatio, "%.2f of the end-to-end p50 of the empty system", true},
		{p99Ratio, "%.2f of the end-to-end p99 without anyone watching", true},
		{retainTime, "%.1f s until everything old was removed", true},
		{firstStart, "%.2f s from the first start to ready", true},
		{secondStart, "%.2f s from the second start to ready", true},
		{stopTime, "%.2f s from SIGTERM to the end", true},
	}
}

// disturbing is the CPU usage of other programs, in cores, above which figures are
// doubtful.
const disturbing = 0.1

// render writes the result as text.
func (r *result) render(to io.Writer) error {
	text := &strings.Builder{}
	fmt.Fprintf(text, "%s\n", r.Machine)
	if r.Runs == 1 {
		text.WriteString("One run, not a median.\n")
	} else {
		fmt.Fprintf(text, "Medians of %d runs; lost and twice are sums.\n", r.Runs)
	}
	for name, value := range r.Settings {
		fmt.Fprintf(text, "With %s=%s.\n", name, value)
	}
	text.WriteByte('\n')
	r.printTable(text, deliveriesPerSecond, columns())
	r.printTable(text, pageP50, pageColumns())
	for _, m := range r.Rows {
		if m.About == "" { // as the row before
			continue
		}
		fmt.Fprintf(text, "\n%s: %s\n", m.Name, m.About)
		for _, line := range m.remarks() {
			fmt.Fprintf(text, "  %s\n", line)
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(text, "\n%s: skipped: %s\n", s.Name, s.Why)
	}
	if !r.knowsCPU() {
		text.WriteString("\nThere is no /proc on this system: CPU and memory of Everpost and PostgreSQL were not measured.\n")
	}
	_, err := io.WriteString(to, text.String())
	if err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// printTable writes the rows that have a figure, in columns.
func (r *result) printTable(to *strings.Builder, having metric, columns []column) {
	lines := [][]string{{""}, {""}}
	for _, c := range columns {
		lines[0], lines[1] = append(lines[0], c.heads[0]), append(lines[1], c.heads[1])
	}
	for _, m := range r.Rows {
		if _, ok := m.Median[having]; !ok {
			continue
		}
		line := []string{m.Name}
		for _, c := range columns {
			line = append(line, c.cell(m.Median))
		}
		lines = append(lines, line)
	}
	if len(lines) > 2 {
		writeAligned(to, lines)
	}
}

// cell formats a row's figures, a dash when one was not measured.
func (c column) cell(f figures) string {
	var parts []string
	for _, m := range c.of {
		value, ok := f[m]
		if !ok {
			return "–"
		}
		parts = append(parts, fmt.Sprintf("%.*f", c.digits, value))
	}
	return strings.Join(parts, c.sep)
}

// writeAligned writes lines of cells, the first column left-aligned and the others
// right-aligned.
func writeAligned(to *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range lines {
		line := fmt.Appendf(nil, "%-*s", widths[0], cells[0])
		for i, cell := range cells[1:] {
			line = fmt.Appendf(line, "  %*s", widths[i+1], cell)
		}
		to.Write(bytes.TrimRight(line, " "))
		to.WriteByte('\n')
	}
}

// remarks returns the lines below the row's name.
func (m *measured) remarks() []string {
	var lines []string
	for _, r := range remarks() {
		if value, ok := m.Median[r.of]; ok && (r.always || value > 0) {
			lines = append(lines, fmt.Sprintf(r.format, value))
		}
	}
	if busy := m.Median[cpuOthers]; busy > disturbing {
		lines = append(lines, fmt.Sprintf("other programs used %.1f cores meanwhile: on an idle machine the figures are better", busy))
	}
	return lines
}

// knowsCPU reports whether CPU usage was measured, or no row has deliveries.
func (r *result) knowsCPU() bool {
	made := false
	for _, m := range r.Rows {
		if _, ok := m.Median[cpuPostgres]; ok {
			return true
		}
		_, ok := m.Median[deliveriesPerSecond]
		made = made || ok
	}
	return !made
}
