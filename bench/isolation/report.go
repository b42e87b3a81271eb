package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// result is a run's result as stored.
type result struct {
	At       time.Time            `json:"at"`
	Settings map[string]string    `json:"settings,omitempty"`
	Machine  installation.Machine `json:"machine"`
	Reports  []*report            `json:"scenarios"`
}

// report is the result of one scenario.
type report struct {
	Name     string      `json:"name"`
	About    string      `json:"about"`
	Figures  []figure    `json:"figures"`
	Criteria []criterion `json:"criteria"`
	Others   float64     `json:"others_cores"` // used by other programs meanwhile
	Curves   []curve     `json:"curves,omitempty"`
}

type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// criterion is met when the measured value is at most the limit.
type criterion struct {
	Text  string  `json:"text"`
	Got   float64 `json:"got"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
}

// curve is arrivals per second, second by second.
type curve struct {
	Name   string `json:"name"`
	Counts []int  `json:"counts"`
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// plain formats a number with two decimals at most.
func plain(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func (r *report) figure(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{name, round(value), unit})
}

// atMost adds a criterion.
func (r *report) atMost(text string, got, limit float64, unit string) {
	r.Criteria = append(r.Criteria, criterion{text, round(got), round(limit), unit, got <= limit})
}

// exactly adds a criterion that the value equals the expected one.
func (r *report) exactly(text string, got, want int, unit string) {
	r.Criteria = append(r.Criteria, criterion{text + ", exactly", float64(got), float64(want), unit, got == want})
}

// compare adds the criterion for another endpoint: its p99 stays that of the quiet phase,
// within a share and some milliseconds.
func (r *report) compare(whose string, quiet, during *outcome, share, more float64) {
	r.figure(whose+", before: p50", quiet.quantile(50), "ms")
	r.figure(whose+", before: p99", quiet.quantile(99), "ms")
	r.figure(whose+", during: p50", during.quantile(50), "ms")
	r.figure(whose+", during: p99", during.quantile(99), "ms")
	r.atMost(whose+", during: p99", during.quantile(99), quiet.quantile(99)*(1+share)+more, "ms")
	r.exactly(whose+": lost or twice", quiet.missing+quiet.again+during.missing+during.again, 0, "events")
}

// complete adds the criterion that every event arrived once.
func (r *report) complete(whose string, o *outcome) {
	r.exactly(whose+": lost", o.missing, 0, "events")
	r.figure(whose+": answered 200 more than once", float64(o.again), "times")
	r.exactly(whose+": never posted", o.unexpected, 0, "arrivals")
}

// verdict is "met" when all criteria are met.
func (r *report) verdict() string {
	if len(r.Criteria) == 0 {
		return "NOT MEASURED"
	}
	for _, c := range r.Criteria {
		if !c.Met {
			return "NOT MET"
		}
	}
	return "met"
}

// disturbing is the CPU usage of other programs, in cores, above which latencies are
// doubtful.
const disturbing = 0.1

// render writes the result as text.
func (r *result) render(to io.Writer) error {
	text := &strings.Builder{}
	fmt.Fprintf(text, "%s\n", r.Machine)
	for _, one := range r.Reports {
		fmt.Fprintf(text, "\n%s: %s\n  %s\n", one.Name, one.verdict(), one.About)
		for _, f := range one.Figures {
			fmt.Fprintf(text, "    %-78s %9s %s\n", f.Name, plain(f.Value), f.Unit)
		}
		for _, c := range one.Criteria {
			met := "met"
			if !c.Met {
				met = "NOT MET"
			}
			fmt.Fprintf(text, "  > %-78s %9s %s (limit %s): %s\n", c.Text, plain(c.Got), c.Unit, plain(c.Limit), met)
		}
		if one.Others > disturbing {
			fmt.Fprintf(text, "    other programs used %.1f cores meanwhile: on an idle machine the latencies are better\n", one.Others)
		}
	}
	if _, err := io.WriteString(to, text.String()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// sound returns nil when all criteria are met.
func (r *result) sound() error {
	var missed []error
	for _, one := range r.Reports {
		for _, c := range one.Criteria {
			if !c.Met {
				missed = append(missed, fmt.Errorf("%s: %s: %s %s, the limit is %s", one.Name, c.Text, plain(c.Got), c.Unit, plain(c.Limit)))
			}
		}
	}
	return errors.Join(missed...)
}

// keep writes the result into the directory as isolation-<date>-<n>.json with the first
// free n, and returns the path.
func (r *result) keep(dir string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755) //nolint:gosec // for everyone to read, as the rest of the tree
	}
	for n := 1; err == nil; n++ {
		path := filepath.Join(dir, fmt.Sprintf("isolation-%s-%d.json", r.At.Format(time.DateOnly), n))
		var file *os.File
		file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as above
		if errors.Is(err, fs.ErrExist) {
			err = nil
			continue
		}
		if err == nil {
			_, err = file.Write(append(text, '\n'))
			if err = errors.Join(err, file.Close()); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("keep the figures: %w", err)
}
