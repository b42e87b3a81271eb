package console

import (
	"context"
	"sync"
	"time"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts. A problem keeps deliveries from being made or events from being accepted, or will soon; a warning does not.
const (
	VerdictOK      Verdict = "ok"
	VerdictWarning Verdict = "warning"
	VerdictProblem Verdict = "problem"
	VerdictSkipped Verdict = "skipped" // cannot be checked; Detail says why
)

// Finding is what a check of the installation found, as "everpost doctor" prints it.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"` // what to do; "" if nothing is wrong
}

const (
	doctorEvery = 10 * time.Second // the checks open connections of their own
	doctorTime  = 30 * time.Second
)

// diagnosis keeps the newest findings: the checks run at most every doctorEvery, and once at a time.
type diagnosis struct {
	mu       sync.Mutex
	at       time.Time
	findings []Finding
}

// findingsOf returns findings that are at most doctorEvery old.
func (d *diagnosis) findingsOf(ctx context.Context, doctor func(context.Context) []Finding, now func() time.Time) ([]Finding, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now().Sub(d.at) >= doctorEvery {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctorTime) // others wait for the same
		defer cancel()
		d.findings, d.at = doctor(within), now()
	}
	return d.findings, d.at
}
