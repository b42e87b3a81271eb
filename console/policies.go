package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
	"github.com/everpost/everpost/internal/retry"
)

// policiesView is the page of retry policies: one of them, drawn, and the presets.
type policiesView struct {
	Form    form
	JSON    string // of the policy in full
	Presets []presetFacts
	Drawn   template.HTML
	Outage  *chart.Outage
}

// presetFacts is a preset in a line.
type presetFacts struct {
	Name     string
	Attempts int
	Last     string // when the last attempt starts, without jitter
	GiveUp   string
	Current  bool
}

const (
	policiesTitle = "Retry policies"
	defaultDown   = "3h"
	maxPolicyText = 16 << 10
)

// showPolicies draws a policy: a preset, the one in force for the tenant's endpoints, or any that is typed.
func showPolicies(p *page) error {
	typed := p.r.URL.Query()
	v := policiesView{Form: newForm("policy", "", "down", defaultDown)}
	if down := typed.Get("down"); down != "" {
		v.Form.Values.Set("down", down)
	}
	policy, text, err := chosenPolicy(p, typed.Get("preset"), typed.Get("policy"))
	v.Form.Values.Set("policy", text)
	if err == nil {
		v.draw(policy)
	} else if v.Form, err = v.Form.refused(v.Form.Values, err); err != nil {
		return err
	}
	v.Presets = presets(policy.Preset)
	return p.show(view{Template: "policies", Title: policiesTitle, Entry: policiesTitle, Status: v.Form.status(), Data: v})
}

// chosenPolicy is a preset, what was typed, or else the policy that is in force for an endpoint of the tenant without one of
// its own. The text is for the form. The error says what is wrong with what was typed.
func chosenPolicy(p *page, preset, typed string) (policy retry.Policy, text string, err error) {
	if typed == "" {
		text, err = policyText(p, preset)
		if err != nil {
			return retry.Policy{}, "", err
		}
	} else {
		text = strings.TrimSpace(typed)
	}
	if len(text) > maxPolicyText {
		return retry.Policy{}, text[:maxPolicyText], wrong("policy", "is too long")
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, `"`) { // a preset's name without quotes
		raw = []byte(strconv.Quote(text)) // what that does not make JSON of is no preset's name
	}
	policy, err = retry.ParsePolicy(raw)
	if fields, ok := errors.AsType[retry.FieldErrors](err); ok {
		bad := refusal(http.StatusBadRequest, "")
		for _, f := range fields {
			bad.Errors = append(bad.Errors, client.FieldError{Field: "policy." + f.Field, Message: strings.TrimSpace(f.Field + " " + f.Message)})
		}
		return retry.Policy{}, text, bad
	}
	if err != nil {
		return retry.Policy{}, text, wrong("policy", "is not a policy: a preset's name, or a JSON object")
	}
	return policy, text, nil
}

// policyText is a preset in full, or the policy in force.
func policyText(p *page, preset string) (string, error) {
	policy, known := retry.Lookup(preset)
	if !known {
		body := map[string]any{"retry_policy": nil} // the tenant's, for its own keys
		if p.session.operator() {
			var tenant client.Tenant
			if err := p.get(&tenant, nil); err != nil {
				return "", err
			}
			body["retry_policy"] = tenant.RetryPolicy
		}
		var previewed struct {
			Policy retry.Policy `json:"retry_policy"`
		}
		if err := p.api.send(p.r.Context(), &previewed, http.MethodPost, apiPath("retry-policies", "preview"), body); err != nil {
			return "", err
		}
		policy = previewed.Policy
	}
	text, err := json.MarshalIndent(policy, "", "  ")
	return string(text), err
}

// maxDown is the longest outage that is asked about.
const maxDown = 30 * 24 * time.Hour

// draw draws a policy, and what it makes of an outage.
func (v *policiesView) draw(policy retry.Policy) {
	text, err := json.MarshalIndent(policy, "", "  ")
	if err == nil {
		v.JSON = string(text)
	}
	v.Drawn = chart.DrawPolicy(policy)
	down, err := time.ParseDuration(strings.ReplaceAll(v.Form.Value("down"), " ", ""))
	if err != nil || down < time.Second || down > maxDown {
		v.Form.errors = map[string]string{"down": "must be a duration from 1s to 720h, such as 90m or 3h"}
		return
	}
	outage := chart.SimulateOutage(policy, down)
	v.Outage = &outage
}

// presets are all presets, in a line each.
func presets(current string) []presetFacts {
	var facts []presetFacts
	for _, preset := range retry.Presets() {
		attempts, last := retry.Preview(preset.Policy), time.Duration(0)
		for _, a := range attempts {
			if a.Expected {
				last = a.Nominal
			}
		}
		facts = append(facts, presetFacts{
			Name: preset.Name, Attempts: preset.Policy.MaxAttempts, Last: chart.Span(last), GiveUp: chart.Span(preset.Policy.GiveUpAfter),
			Current: preset.Name == current,
		})
	}
	return facts
}
