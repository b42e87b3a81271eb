package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/retry"
)

// showPolicy shows a policy; the zero policy as the installation's.
func showPolicy(p retry.Policy) client.RetryPolicy { return client.RetryPolicy(p.Fields()) }

func showPreview(p retry.Policy) client.AttemptTables {
	var views client.AttemptTables
	for _, a := range retry.Preview(p) {
		views.Attempts = append(views.Attempts, client.PreviewAttempt{
			Number: a.Number, Earliest: showDelay(a.Earliest), Nominal: showDelay(a.Nominal),
			Latest: showDelay(a.Latest), LatestAfter429: showDelay(a.LatestAfter429),
			LatestAfterRetryAfter: showDelay(a.LatestAfterRetryAfter), Expected: a.Expected,
		})
	}
	for _, a := range retry.PreviewAmbiguous(p) {
		views.IfAmbiguous = append(views.IfAmbiguous, client.PreviewAmbiguous{
			Number: a.Number, Earliest: showDelay(a.Earliest), Nominal: showDelay(a.Nominal), Latest: showDelay(a.Latest), Expected: a.Expected,
		})
	}
	return views
}

// showDelay formats a time of the preview, rounded to microseconds like all times of the API. The
// rest comes from the rounding of powers of a fractional factor.
func showDelay(d time.Duration) string { return retry.FormatDuration(d.Round(time.Microsecond)) }

// policyHandler answers requests about retry policies.
type policyHandler struct {
	tenants      tenantReader
	installation retry.Policy
}

// list lists all presets on one page, which has room for them.
func (h *policyHandler) list(c call) error {
	var page pageWriter
	for _, preset := range retry.Presets() {
		shown := client.Preset{Name: preset.Name, RetryPolicy: showPolicy(preset.Policy), AttemptTables: showPreview(preset.Policy)}
		if _, err := page.add(shown); err != nil {
			return err
		}
	}
	return c.send(http.StatusOK, page.end(""))
}

// preview previews a policy. Null stands for the policy of an endpoint without its own:
// that of the key's tenant, or the installation's.
func (h *policyHandler) preview(c call) error {
	var policy retry.Policy
	err := c.object(func(d *jsonDecoder, name string) {
		if name != "retry_policy" {
			d.unknown()
			return
		}
		set(d, &policy, retry.Policy{}, readRetryPolicy)
	}, "retry_policy")
	if err == nil && policy.IsZero() {
		policy, err = h.inherited(c)
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.Preview{RetryPolicy: showPolicy(policy), AttemptTables: showPreview(policy)})
}

// inherited returns the policy of an endpoint without its own in the caller's tenant; for an
// operator, who has no tenant, the installation's.
func (h *policyHandler) inherited(c call) (retry.Policy, error) {
	if c.key.TenantID != "" {
		t, err := h.tenants.Tenant(c.Request().Context(), c.key.TenantID)
		if err != nil || !t.RetryPolicy.IsZero() {
			return t.RetryPolicy, err
		}
	}
	return h.installation, nil
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
