package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// presetView is a preset with the times of its attempts.
type presetView struct {
	Name        string        `json:"name"`
	RetryPolicy retry.Policy  `json:"retry_policy"`
	Attempts    []previewView `json:"attempts"`
}

// previewView says when an attempt starts, counted from the first one. Expected is
// false for one that takes place only when jitter made the delays before it short.
type previewView struct {
	Number         int    `json:"number"`
	Earliest       string `json:"earliest"`
	Nominal        string `json:"nominal"`
	Latest         string `json:"latest"`
	LatestAfter429 string `json:"latest_after_429"`
	Expected       bool   `json:"expected"`
}

func showPreview(p retry.Policy) []previewView {
	attempts := retry.Preview(p)
	views := make([]previewView, 0, len(attempts))
	for _, a := range attempts {
		views = append(views, previewView{
			Number: a.Number, Earliest: showDelay(a.Earliest), Nominal: showDelay(a.Nominal),
			Latest: showDelay(a.Latest), LatestAfter429: showDelay(a.LatestAfter429), Expected: a.Expected,
		})
	}
	return views
}

// showDelay writes a time of the preview to the microsecond, as all times of the API:
// what a factor with a fraction leaves beyond is the rounding of its powers.
func showDelay(d time.Duration) string { return retry.FormatDuration(d.Round(time.Microsecond)) }

// listRetryPolicies shows all presets; they are few and always one page.
func (s *Server) listRetryPolicies(c call) error {
	presets := retry.Presets()
	p := page[presetView]{Data: make([]presetView, 0, len(presets))}
	for _, preset := range presets {
		p.Data = append(p.Data, presetView{Name: preset.Name, RetryPolicy: preset.Policy, Attempts: showPreview(preset.Policy)})
	}
	return c.json(http.StatusOK, p)
}

// previewRetryPolicy shows what a policy comes to before an endpoint is given it.
func (s *Server) previewRetryPolicy(c call) error {
	policy := retry.Default()
	err := c.object(func(d *door, name string) {
		if name != "retry_policy" {
			d.unknown()
			return
		}
		policy = readRetryPolicy(d)
	}, "retry_policy")
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, struct {
		RetryPolicy retry.Policy  `json:"retry_policy"`
		Attempts    []previewView `json:"attempts"`
	}{policy, showPreview(policy)})
}

// readRetryPolicy reads a preset's name or an object; null is the default.
func readRetryPolicy(d *door) retry.Policy {
	if d.null() {
		return retry.Default()
	}
	before := len(d.errs)
	raw := d.raw()
	if d.broken || len(d.errs) > before { // what breaks the door's rules need not be read
		return retry.Default()
	}
	policy, err := retry.ParsePolicy(raw)
	if err == nil {
		return policy
	}
	if fields, ok := errors.AsType[retry.FieldErrors](err); ok {
		for _, f := range fields {
			d.noteIn(f.Field, f.Message)
		}
	} else {
		d.note("is not a retry policy")
	}
	return retry.Default()
}
