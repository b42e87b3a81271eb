package console

import (
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/webhook"
)

// maxSteps bounds the steps of a chart.
const maxSteps = 2000

// statsRange is a span of time of which statistics are shown.
type statsRange struct {
	Name, Label string
	span        time.Duration
	step        string
}

// Step is what a bar of the charts stands for.
func (r statsRange) Step() string {
	if r.step == "1h" {
		return "hour"
	}
	return "minute"
}

// statsRanges are the spans that can be chosen.
func statsRanges() []statsRange {
	return []statsRange{
		{"1h", "The last hour", time.Hour, "1m"}, {"24h", "The last 24 hours", 24 * time.Hour, "1h"}, {"7d", "The last 7 days", 7 * 24 * time.Hour, "1h"},
	}
}

// rangeOf is the span that the page's query names, else the one with the name.
func rangeOf(p *page, otherwise string) statsRange {
	all := statsRanges()
	for _, name := range []string{p.r.URL.Query().Get("range"), otherwise} {
		if i := slices.IndexFunc(all, func(r statsRange) bool { return r.Name == name }); i >= 0 {
			return all[i]
		}
	}
	return all[0]
}

// rates are the figures of a span of time, with what is healthy (docs/monitoring.md has the same bounds).
type rates struct {
	Known                             bool // something happened
	Attempts, Delivered, Dead         int64
	Success, Failed, DeadShare        *float64 // nil: there is nothing of which it would be a share
	SuccessTone, FailedTone, DeadTone string
	P50, P95                          *int64 // of answers; nil without any
}

// Healthy ranges, and the values from which there is an alert.
const (
	failedWarn, failedBad = 0.05, 0.10
	deadWarn, deadBad     = 0.005, 0.01
	successGood           = 0.995
)

// ratesOf makes the figures of the totals.
func ratesOf(b client.StatsCounts) rates {
	delivered, dead := b.Ended["delivered"], b.Ended["dead_lettered"]
	r := rates{
		Attempts: attemptsMade(b), Delivered: delivered, Dead: dead, P50: b.LatencyMS.P50, P95: b.LatencyMS.P95,
		Success: share(delivered, delivered+dead), Failed: share(b.FirstAttempts-b.FirstDelivered, b.FirstAttempts), DeadShare: share(dead, delivered+dead),
	}
	r.Known = r.Attempts > 0 || delivered+dead > 0
	if r.Success != nil {
		r.SuccessTone = tone(1-*r.Success, 1-successGood, deadBad)
	}
	if r.Failed != nil {
		r.FailedTone = tone(*r.Failed, failedWarn, failedBad)
	}
	if r.DeadShare != nil {
		r.DeadTone = tone(*r.DeadShare, deadWarn, deadBad)
	}
	return r
}

// attemptsMade is the number of all attempts.
func attemptsMade(b client.StatsCounts) (n int64) {
	for _, of := range b.Attempts {
		n += of
	}
	return n
}

// share is part of whole; nil of nothing.
func share(part, whole int64) *float64 {
	if whole <= 0 {
		return nil
	}
	f := math.Max(0, float64(part)/float64(whole))
	return &f
}

// tone is the class of a share for which less is better.
func tone(value, warn, bad float64) string {
	switch {
	case value > bad:
		return "bad"
	case value >= warn && value > 0:
		return "retry"
	}
	return "good"
}

// charts are the figures and pictures of a span of time. Nil: there are none.
type charts struct {
	Range     statsRange
	Rates     rates
	Outcomes  template.HTML
	Latencies template.HTML
	Since     time.Time
}

// Ranges are the spans that can be chosen.
func (c *charts) Ranges() []statsRange { return statsRanges() }

// statsOf reads and draws the statistics at a path; nil if the API has none.
func statsOf(p *page, path string, endpointID string, of statsRange) (*charts, error) {
	unit := time.Minute
	if of.step == "1h" {
		unit = time.Hour
	}
	// The step under way is the last one.
	since := p.console.config.Now().UTC().Truncate(unit).Add(unit - of.span)
	var s client.Stats
	err := p.api.get(p.r.Context(), &s, url.Values{
		"endpoint_id": {endpointID}, "since": {since.Format(time.RFC3339)}, "step": {of.step},
	}, path)
	if isStatus(err, http.StatusNotFound) {
		return nil, nil //nolint:nilnil // there is nothing to show, which is no error
	}
	if err != nil {
		return nil, err
	}
	c := &charts{Range: of, Rates: ratesOf(s.Totals), Since: s.Since.Time}
	if !c.Rates.Known {
		return c, nil
	}
	steps := int(s.Until.Sub(s.Since.Time)/unit) + 1
	if steps < 1 || steps > maxSteps {
		return c, nil
	}
	c.Outcomes, c.Latencies = drawOutcomes(s, unit, steps), drawLatencies(s, unit, steps)
	return c, nil
}

// indexOf is a bucket's step; -1 outside.
func indexOf(s *client.Stats, b client.StatsPoint, unit time.Duration, steps int) int {
	if i := int(b.At.Sub(s.Since.Time) / unit); i >= 0 && i < steps {
		return i
	}
	return -1
}

func drawOutcomes(s client.Stats, unit time.Duration, steps int) template.HTML {
	bars := chart.Bars{Title: "Attempts by outcome", Unit: "attempts", Begin: s.Since.Time, Step: unit}
	for _, class := range webhook.OutcomeClasses() {
		values, sum := make([]int64, steps), int64(0)
		for _, b := range s.Data {
			if i := indexOf(&s, b, unit, steps); i >= 0 {
				values[i] += b.Attempts[class.String()]
				sum += b.Attempts[class.String()]
			}
		}
		if sum > 0 {
			name, tone := drawnAs(class)
			bars.Series = append(bars.Series, chart.Series{Name: name, Tone: tone, Values: values})
		}
	}
	if len(bars.Series) == 0 {
		return ""
	}
	return chart.DrawBars(bars)
}

// drawnAs is what a class of outcomes is called in a chart, and its colour.
func drawnAs(class webhook.OutcomeClass) (name string, tone chart.Tone) {
	switch class {
	case webhook.ClassDelivered:
		return "delivered", chart.ToneGood
	case webhook.ClassHTTP5xx:
		return "5xx", chart.ToneRetry
	case webhook.ClassHTTP4xx:
		return "4xx", chart.ToneBad
	case webhook.ClassTimeout:
		return "timeout", chart.ToneWait
	case webhook.ClassConnection:
		return "no connection", chart.ToneQuiet
	case webhook.ClassDNS:
		return "DNS", chart.ToneLink
	case webhook.ClassTLS:
		return "TLS", chart.TonePlum
	case webhook.ClassOther:
	}
	return "redirect or other", chart.ToneInk
}

func drawLatencies(s client.Stats, unit time.Duration, steps int) template.HTML {
	lines := chart.Lines{Title: "Latency of the receivers' answers", Begin: s.Since.Time, Step: unit}
	for _, q := range []struct {
		name string
		tone chart.Tone
		of   func(client.StatsLatency) *int64
	}{
		{"p50", chart.ToneGood, func(q client.StatsLatency) *int64 { return q.P50 }},
		{"p95", chart.ToneRetry, func(q client.StatsLatency) *int64 { return q.P95 }},
	} {
		values := make([]time.Duration, steps)
		for i := range values {
			values[i] = -1 // a gap
		}
		for _, b := range s.Data {
			if i, ms := indexOf(&s, b, unit, steps), q.of(b.LatencyMS); i >= 0 && ms != nil {
				values[i] = time.Duration(*ms) * time.Millisecond
			}
		}
		lines.Series = append(lines.Series, chart.Durations{Name: q.name, Tone: q.tone, Values: values})
	}
	return chart.DrawLines(lines)
}
