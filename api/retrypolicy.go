package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// presetView is a preset with the times of its attempts.
type presetView struct {
	Name        string       `json:"name"`
	RetryPolicy retry.Policy `json:"retry_policy"`
	previewsView
}

// previewsView lists the attempts of a policy for two receivers: one that always fails, and one
// whose outcomes are all ambiguous (404 or refused credentials).
type previewsView struct {
	Attempts    []previewView   `json:"attempts"`
	IfAmbiguous []ambiguousView `json:"attempts_if_ambiguous"`
}

// previewView is when an attempt starts, relative to the first one. Expected is false for an
// attempt that takes place only if the jitter shortens the delays before it.
type previewView struct {
	Number                int    `json:"number"`
	Earliest              string `json:"earliest"`
	Nominal               string `json:"nominal"`
	Latest                string `json:"latest"`
	LatestAfter429        string `json:"latest_after_429"`
	LatestAfterRetryAfter string `json:"latest_after_retry_after"`
	Expected              bool   `json:"expected"`
}

// ambiguousView is previewView for a receiver that answers neither 429 nor with Retry-After.
type ambiguousView struct {
	Number   int    `json:"number"`
	Earliest string `json:"earliest"`
	Nominal  string `json:"nominal"`
	Latest   string `json:"latest"`
	Expected bool   `json:"expected"`
}

func showPreview(p retry.Policy) previewsView {
	var views previewsView
	for _, a := range retry.Preview(p) {
		views.Attempts = append(views.Attempts, previewView{
			Number: a.Number, Earliest: showDelay(a.Earliest), Nominal: showDelay(a.Nominal),
			Latest: showDelay(a.Latest), LatestAfter429: showDelay(a.LatestAfter429),
			LatestAfterRetryAfter: showDelay(a.LatestAfterRetryAfter), Expected: a.Expected,
		})
	}
	for _, a := range retry.PreviewAmbiguous(p) {
		views.IfAmbiguous = append(views.IfAmbiguous, ambiguousView{
			Number: a.Number, Earliest: showDelay(a.Earliest), Nominal: showDelay(a.Nominal), Latest: showDelay(a.Latest), Expected: a.Expected,
		})
	}
	return views
}

// showDelay formats a time of the preview, rounded to microseconds like all times of the API. The
// rest comes from the rounding of powers of a fractional factor.
func showDelay(d time.Duration) string { return retry.FormatDuration(d.Round(time.Microsecond)) }

// listRetryPolicies lists all presets on one page.
func (s *Server) listRetryPolicies(c call) error {
	presets := retry.Presets()
	p := page[presetView]{Data: make([]presetView, 0, len(presets))}
	for _, preset := range presets {
		p.Data = append(p.Data, presetView{Name: preset.Name, RetryPolicy: preset.Policy, previewsView: showPreview(preset.Policy)})
	}
	return c.json(http.StatusOK, p)
}

// previewRetryPolicy previews a policy. Null stands for the policy of an endpoint without its own:
// that of the key's tenant, or the installation's.
func (s *Server) previewRetryPolicy(c call) error {
	var policy retry.Policy
	err := c.object(func(d *jsonDecoder, name string) {
		if name != "retry_policy" {
			d.unknown()
			return
		}
		set(d, &policy, retry.Policy{}, readRetryPolicy)
	}, "retry_policy")
	if err == nil && policy.IsZero() {
		policy, err = s.inheritedPolicy(c)
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, struct {
		RetryPolicy retry.Policy `json:"retry_policy"`
		previewsView
	}{policy, showPreview(policy)})
}

// inheritedPolicy returns the policy of an endpoint without its own in the caller's tenant; for an
// operator, who has no tenant, the installation's.
func (s *Server) inheritedPolicy(c call) (retry.Policy, error) {
	if c.key.TenantID != "" {
		t, err := s.config.Tenants.Tenant(c.Request().Context(), c.key.TenantID)
		if err != nil || !t.RetryPolicy.IsZero() {
			return t.RetryPolicy, err
		}
	}
	return s.config.RetryPolicy, nil
}

// readRetryPolicy reads a preset's name or an object.
func readRetryPolicy(d *jsonDecoder) retry.Policy {
	before := len(d.errs)
	raw := d.raw()
	if d.broken || len(d.errs) > before { // invalid JSON has been noted already
		return retry.Policy{}
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
	return retry.Policy{}
}
