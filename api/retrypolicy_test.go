package api

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

const previewPath = "/v1/retry-policies/preview"

// requirePreview holds the attempts of an answer against the policy's preview.
func requirePreview(t *testing.T, policy retry.Policy, attempts []previewView) {
	t.Helper()
	want := retry.Preview(policy)
	require.Len(t, attempts, len(want))
	for i, a := range attempts {
		require.Equal(t, want[i].Number, a.Number)
		require.Equal(t, want[i].Expected, a.Expected)
		for text, d := range map[string]time.Duration{
			a.Earliest: want[i].Earliest, a.Nominal: want[i].Nominal, a.Latest: want[i].Latest, a.LatestAfter429: want[i].LatestAfter429,
		} {
			parsed, err := time.ParseDuration(text)
			require.NoError(t, err)
			require.InDelta(t, d, parsed, float64(time.Microsecond), "attempt %d", a.Number)
		}
	}
}

// preview asks for a policy's preview and returns the policy in full and the attempts.
func (b *bundle) preview(t *testing.T, policy string) (retry.Policy, []previewView) {
	t.Helper()
	a := b.ok(t, http.StatusOK, "ingest", "POST", previewPath, `{"retry_policy":`+policy+`}`)
	var got struct {
		RetryPolicy retry.Policy  `json:"retry_policy"`
		Attempts    []previewView `json:"attempts"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.text), &got))
	return got.RetryPolicy, got.Attempts
}

func TestPresetsWithTheTimesOfTheirAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, as := range []string{"operator", "admin", "ingest", "foreign"} {
		var got page[presetView]
		require.NoError(t, json.Unmarshal([]byte(b.ok(t, http.StatusOK, as, "GET", "/v1/retry-policies", "").text), &got))
		require.Len(t, got.Data, len(retry.Presets()))
		for i, preset := range retry.Presets() {
			require.Equal(t, preset.Name, got.Data[i].Name)
			require.Equal(t, preset.Policy, got.Data[i].RetryPolicy)
			requirePreview(t, preset.Policy, got.Data[i].Attempts)
		}
	}
	b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/retry-policies", "")
	b.ok(t, http.StatusUnauthorized, "", "POST", previewPath, `{"retry_policy":"fast"}`)
}

// A preset by its name, as an object, and what the answer says of it sent back: all
// the same. Null is the default.
func TestPreviewOfPresets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, preset := range retry.Presets() {
		whole, err := json.Marshal(preset.Policy)
		require.NoError(t, err)
		for _, text := range []string{`"` + preset.Name + `"`, `{"preset":"` + preset.Name + `"}`, string(whole)} {
			policy, attempts := b.preview(t, text)
			require.Equal(t, preset.Policy, policy, text)
			requirePreview(t, preset.Policy, attempts)
		}
	}
	policy, _ := b.preview(t, `null`)
	require.Equal(t, retry.Default(), policy)
}

// The preview of an override: the default gives up after an hour.
func TestPreviewOfOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	policy, attempts := b.preview(t, `{"preset":"default","give_up_after":"1h","retry_statuses":[409],"factor":1.7}`)
	require.Equal(t, "default", policy.Preset)
	require.Equal(t, []int{409}, policy.RetryStatuses)
	require.Equal(t, previewView{Number: 1, Earliest: "0s", Nominal: "0s", Latest: "0s", LatestAfter429: "0s", Expected: true}, attempts[0])
	require.Equal(t, previewView{Number: 2, Earliest: "5s", Nominal: "10s", Latest: "10s", LatestAfter429: "20s", Expected: true}, attempts[1])
	require.Equal(t, previewView{Number: 4, Earliest: "27.95s", Nominal: "55.9s", Latest: "55.9s", LatestAfter429: "1m51.8s", Expected: true}, attempts[3])
	require.Equal(t, "1h", attempts[len(attempts)-1].Latest, "the give-up time bounds them all")
}

func TestPreviewOfAnyPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(r *rapid.T) {
		text, err := json.Marshal(map[string]any{
			"strategy":      rapid.SampledFrom([]string{"fixed", "linear", "exponential"}).Draw(r, "strategy"),
			"base":          retry.FormatDuration(time.Duration(rapid.IntRange(1, 7200_000).Draw(r, "base ms")) * time.Millisecond),
			"factor":        rapid.Float64Range(1, 100).Draw(r, "factor"),
			"jitter":        rapid.SampledFrom([]string{"none", "full", "equal", "decorrelated", "proportional"}).Draw(r, "jitter"),
			"max_attempts":  rapid.IntRange(1, 50).Draw(r, "attempts"),
			"give_up_after": retry.FormatDuration(time.Duration(rapid.IntRange(1, 720*3600).Draw(r, "give up s")) * time.Second),
		})
		require.NoError(r, err)
		want, err := retry.ParsePolicy(text)
		require.NoError(r, err)
		policy, attempts := b.preview(t, string(text))
		require.True(r, want.Equal(policy), "%s", text)
		requirePreview(t, want, attempts)
	})
}

// What is refused is named with its path, the same for the preview as for an endpoint.
func TestRefusedPoliciesAreNamedWithTheirPath(t *testing.T) {
	t.Parallel()
	const delay = "must be between 1ms and 720h"
	b := setup(t)
	id := b.endpoint(t)
	for policy, want := range map[string][]string{
		`{"base":"0s"}`:                           {"retry_policy.base", delay},
		`{"base":"-1s"}`:                          {"retry_policy.base", delay},
		`{"base":10}`:                             {"retry_policy.base", `must be a duration such as "30s" or "72h"`},
		`{"base":"NaN"}`:                          {"retry_policy.base", `must be a duration such as "30s" or "72h"`},
		`{"cap":"0s"}`:                            {"retry_policy.cap", delay},
		`{"factor":0}`:                            {"retry_policy.factor", "must be between 1 and 100"},
		`{"factor":-3}`:                           {"retry_policy.factor", "must be between 1 and 100"},
		`{"factor":"NaN"}`:                        {"retry_policy.factor", "must be a number"},
		`{"max_attempts":0}`:                      {"retry_policy.max_attempts", "must be between 1 and 1000"},
		`{"ambiguous_attempts":0}`:                {"retry_policy.ambiguous_attempts", "must be between 1 and 1000"},
		`{"give_up_after":"0s"}`:                  {"retry_policy.give_up_after", "must be between 1s and 720h"},
		`{"min_delay":"-1s"}`:                     {"retry_policy.min_delay", "must be between 0s and 720h"},
		`{"preset":"steps-90m","jitter_ratio":0}`: {"retry_policy.jitter_ratio", "must be above 0 and at most 1"},
		`{"strategy":"sometimes"}`:                {"retry_policy.strategy", "must be fixed, linear, exponential or schedule"},
		`{"strategy":"schedule","schedule":["1s","0s"]}`: {"retry_policy.schedule[1]", delay},
		`{"retry_statuses":[404,200]}`:                   {"retry_policy.retry_statuses[1]", "must be a status from 100 to 999 other than 2xx and 3xx"},
		`{"permanent_statuses":[302]}`:                   {"retry_policy.permanent_statuses[0]", "must be a status from 100 to 999 other than 2xx and 3xx"},
		`{"base":"0s","factor":0}`:                       {"retry_policy.base", delay, "retry_policy.factor", "must be between 1 and 100"},
		`{"bsae":"1s"}`:                                  {"retry_policy.bsae", "is not a setting of a retry policy"},
		`{"preset":"fastest"}`:                           {"retry_policy.preset", `there is no preset "fastest"`},
		`"fastest"`:                                      {"retry_policy", `there is no preset "fastest"`},
		`7`:                                              {"retry_policy", "must be a preset's name or an object"},
	} {
		b.refused(t, "admin", "POST", previewPath, `{"retry_policy":`+policy+`}`, want...)
		b.refused(t, "admin", "POST", "/v1/tenants/acme/endpoints", `{"url":"https://example.com/hook","retry_policy":`+policy+`}`, want...)
		b.refused(t, "admin", "PATCH", "/v1/tenants/acme/endpoints/"+id, `{"retry_policy":`+policy+`}`, want...)
	}
	b.refused(t, "ingest", "POST", previewPath, `{}`, "retry_policy", "is required")
	b.refused(t, "ingest", "POST", previewPath, `{"retry_policy":"fast","policy":1}`, "policy", "is not a known field")
	b.refused(t, "ingest", "POST", previewPath, `{"retry_policy":{"base":"1s","base":"2s"}}`, "retry_policy.base", "is given more than once")
}
