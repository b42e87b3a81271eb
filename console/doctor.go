package console

import (
	"net/http"
	"time"
)

const doctorTitle = "Doctor"

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
