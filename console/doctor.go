package console

import (
	"context"
	"net/http"
	"sync"
	"time"
)

func doctorRoutes() []route {
	return []route{{pattern: "GET /doctor", access: operators, handle: showDoctor, slow: true}}
}

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
	doctorTitle = "Doctor"
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

// doctorView is the page of the checks.
type doctorView struct {
	Findings []Finding
	At       time.Time
	Problems int
	Warnings int
}

func showDoctor(p *page) error {
	doctor := p.console.config.Doctor
	if doctor == nil {
		return refusal(http.StatusNotFound, "this process cannot check the installation; run \"everpost doctor\"")
	}
	v := doctorView{}
	v.Findings, v.At = p.console.diagnosis.findingsOf(p.r.Context(), doctor, p.console.config.Now)
	for _, f := range v.Findings {
		switch f.Verdict {
		case VerdictProblem:
			v.Problems++
		case VerdictWarning:
			v.Warnings++
		case VerdictOK, VerdictSkipped:
		}
	}
	return p.show(view{Template: "doctor", Title: doctorTitle, Entry: doctorTitle, Data: v})
}
