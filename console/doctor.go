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

// Finding is what a check of the installation found, as "everpost doctor" prints it.
type Finding struct {
	Check   string
	Verdict string // ok, warning, problem or skipped
	Detail  string
	Remedy  string // what to do; "" if nothing is wrong
}

// Doctor checks the installation.
type Doctor interface {
	// Diagnose makes the checks of "everpost doctor", which change nothing.
	Diagnose(ctx context.Context) []Finding
}

const (
	doctorTitle = "Doctor"
	doctorEvery = 10 * time.Second // the checks open connections of their own
	doctorTime  = 30 * time.Second
)

// diagnosis keeps the newest findings, so that readers do not make the checks more often than every ten seconds, and never
// two at a time.
type diagnosis struct {
	mu       sync.Mutex
	at       time.Time
	findings []Finding
}

// of returns findings that are at most doctorEvery old.
func (d *diagnosis) of(ctx context.Context, doctor Doctor, now func() time.Time) ([]Finding, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now().Sub(d.at) >= doctorEvery {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctorTime) // others wait for the same
		defer cancel()
		d.findings, d.at = doctor.Diagnose(within), now()
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
		return &problem{Status: http.StatusNotFound, Detail: "this process cannot check the installation; run \"everpost doctor\""}
	}
	v := doctorView{}
	v.Findings, v.At = p.console.diagnosis.of(p.r.Context(), doctor, p.console.config.Now)
	for _, f := range v.Findings {
		switch f.Verdict {
		case "problem":
			v.Problems++
		case "warning":
			v.Warnings++
		}
	}
	return p.show(view{Template: "doctor", Title: doctorTitle, Entry: doctorTitle, Data: v})
}
