package api

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/retry"
)

const previewPath = "/v1/retry-policies/preview"

// requirePreview compares the attempts of a response with the policy's preview.
func requirePreview(t *testing.T, policy retry.Policy, attempts []client.PreviewAttempt) {
	t.Helper()
	want := retry.Preview(policy)
	require.Len(t, attempts, len(want))
	for i, a := range attempts {
		require.Equal(t, want[i].Number, a.Number)
		require.Equal(t, want[i].Expected, a.Expected)
		for text, d := range map[string]time.Duration{
			a.Earliest: want[i].Earliest, a.Nominal: want[i].Nominal, a.Latest: want[i].Latest, a.LatestAfter429: want[i].LatestAfter429,
			a.LatestAfterRetryAfter: want[i].LatestAfterRetryAfter,
		} {
			parsed, err := time.ParseDuration(text)
			require.NoError(t, err)
			require.InDelta(t, d, parsed, float64(time.Microsecond), "attempt %d", a.Number)
		}
	}
}

// requireAmbiguous is requirePreview for ambiguous outcomes.
func requireAmbiguous(t *testing.T, policy retry.Policy, attempts []client.PreviewAmbiguous) {
	t.Helper()
	want := retry.PreviewAmbiguous(policy)
	require.Len(t, attempts, len(want))
	for i, a := range attempts {
		require.Equal(t, client.PreviewAmbiguous{
			Number: want[i].Number, Earliest: showDelay(want[i].Earliest), Nominal: showDelay(want[i].Nominal),
			Latest: showDelay(want[i].Latest), Expected: want[i].Expected,
		}, a)
	}
}

// preview requests a policy's preview and returns the complete policy and the attempts.
func (b *bundle) preview(t *testing.T, policy string) (retry.Policy, []client.PreviewAttempt) {
	t.Helper()
	a := b.ok(t, http.StatusOK, "ingest", "POST", previewPath, `{"retry_policy":`+policy+`}`)
	var got struct {
		RetryPolicy retry.Policy            `json:"retry_policy"`
		Attempts    []client.PreviewAttempt `json:"attempts"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.text), &got))
	return got.RetryPolicy, got.Attempts
}

func TestPresetsWithTheTimesOfTheirAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, as := range []string{"operator", "admin", "ingest", "foreign"} {
		var got client.Page[client.Preset]
		require.NoError(t, json.Unmarshal([]byte(b.ok(t, http.StatusOK, as, "GET", "/v1/retry-policies", "").text), &got))
		require.Len(t, got.Data, len(retry.Presets()))
		for i, preset := range retry.Presets() {
			require.Equal(t, preset.Name, got.Data[i].Name)
			require.Equal(t, showPolicy(preset.Policy), got.Data[i].RetryPolicy)
			requirePreview(t, preset.Policy, got.Data[i].Attempts)
			requireAmbiguous(t, preset.Policy, got.Data[i].IfAmbiguous)
		}
	}
	b.ok(t, http.StatusUnauthorized, "", "GET", "/v1/retry-policies", "")
	b.ok(t, http.StatusUnauthorized, "", "POST", previewPath, `{"retry_policy":"fast"}`)
}

// A preset as a name, as an object, and as the policy of the response have the same preview. Null is
// the default.
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

// A tenant's policy applies to its endpoints without their own, until the tenant is put without a
// policy. The preview of null is the policy of such an endpoint.
func TestTenantsPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := endpointsPath + "/" + b.endpoint(t)
	inForce := func(method, body string) (policy, source any) {
		a := b.ok(t, http.StatusOK, "admin", method, path, body)
		return a.json["retry_policy"].(map[string]any)["preset"], a.json["retry_policy_source"]
	}
	requirePolicy := func(wantPolicy, wantSource any, method, body string) {
		t.Helper()
		policy, source := inForce(method, body)
		require.Equal(t, []any{wantPolicy, wantSource}, []any{policy, source})
	}
	requirePolicy("default", "installation", "GET", "")

	a := b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/acme", `{"retry_policy":{"preset":"fast","max_attempts":3}}`)
	require.InDelta(t, 3, a.json["retry_policy"].(map[string]any)["max_attempts"], 0)
	require.Equal(t, a.text, b.ok(t, http.StatusOK, "operator", "GET", "/v1/tenants/acme", "").text)
	requirePolicy("fast", "tenant", "GET", "")
	created := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","retry_policy":null}`)
	require.Equal(t, "tenant", created.json["retry_policy_source"])
	policy, _ := b.preview(t, `null`)
	require.Equal(t, "fast", policy.Preset)
	require.Equal(t, 3, policy.MaxAttempts)

	requirePolicy("steps-90m", "endpoint", "PATCH", `{"retry_policy":"steps-90m"}`)
	requirePolicy("steps-90m", "endpoint", "PATCH", `{"description":"another"}`)
	requirePolicy("fast", "tenant", "PATCH", `{"retry_policy":null}`)
	requirePolicy("default", "endpoint", "PATCH", `{"retry_policy":"default"}`)
	requirePolicy("fast", "tenant", "PATCH", `{"retry_policy":null}`)

	require.Nil(t, b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/acme", `{"name":"Acme"}`).json["retry_policy"], "PUT replaces")
	requirePolicy("default", "installation", "GET", "")
	b.ok(t, http.StatusForbidden, "admin", "PUT", "/v1/tenants/acme", `{"retry_policy":"fast"}`)
}

// Null is the installation's policy if the tenant has none, and for an operator, who has no tenant.
func TestPreviewOfTheInstallationsPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.RetryPolicy = mustLookup(t, "steps-36h") })
	for _, as := range []string{"operator", "admin", "ingest"} {
		a := b.ok(t, http.StatusOK, as, "POST", previewPath, `{"retry_policy":null}`)
		require.Equal(t, "steps-36h", a.json["retry_policy"].(map[string]any)["preset"], as)
	}
}

func mustLookup(t *testing.T, name string) retry.Policy {
	t.Helper()
	policy, found := retry.Lookup(name)
	require.True(t, found)
	return policy
}

// Only 404 responses: the default's delays, each with a jitter of ±10 %. Without delays the delivery
// ends with the first attempt.
func TestPreviewOfAmbiguousOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for policy, want := range map[string][]any{
		`{"jitter":"none"}`: {
			ambiguous(1, "0s", "0s", "0s"), ambiguous(2, "54s", "1m", "1m6s"),
			ambiguous(3, "14m24s", "16m", "17m36s"), ambiguous(4, "2h2m24s", "2h16m", "2h29m36s"),
			ambiguous(5, "12h50m24s", "14h16m", "15h41m36s"), ambiguous(6, "34h26m24s", "38h16m", "42h5m36s"),
		},
		`{"jitter":"none","ambiguous_delays":["5s"]}`: {
			ambiguous(1, "0s", "0s", "0s"), ambiguous(2, "10s", "10s", "10s"),
		},
		`{"jitter":"none","ambiguous_delays":["1m","2m"],"max_attempts":2}`: {
			ambiguous(1, "0s", "0s", "0s"), ambiguous(2, "54s", "1m", "1m6s"),
		},
		`{"ambiguous_delays":[]}`: {ambiguous(1, "0s", "0s", "0s")},
	} {
		a := b.ok(t, http.StatusOK, "ingest", "POST", previewPath, `{"retry_policy":`+policy+`}`)
		text, err := json.Marshal(want)
		require.NoError(t, err)
		got, err := json.Marshal(a.json["attempts_if_ambiguous"])
		require.NoError(t, err)
		require.JSONEq(t, string(text), string(got))
	}
}

// The preview of an override: the default gives up after an hour.
func TestPreviewOfOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	policy, attempts := b.preview(t, `{"preset":"default","give_up_after":"1h","retry_statuses":[409],"factor":1.7}`)
	require.Equal(t, "default", policy.Preset)
	require.Equal(t, []int{409}, policy.RetryStatuses)
	require.Equal(t, client.PreviewAttempt{Number: 1, Earliest: "0s", Nominal: "0s", Latest: "0s", LatestAfter429: "0s",
		LatestAfterRetryAfter: "0s", Expected: true}, attempts[0])
	require.Equal(t, client.PreviewAttempt{Number: 2, Earliest: "5s", Nominal: "10s", Latest: "10s", LatestAfter429: "20s",
		LatestAfterRetryAfter: "1h", Expected: true}, attempts[1])
	require.Equal(t, client.PreviewAttempt{Number: 4, Earliest: "27.95s", Nominal: "55.9s", Latest: "55.9s", LatestAfter429: "1m51.8s",
		LatestAfterRetryAfter: "1h", Expected: true}, attempts[3])
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

// An invalid setting is named with its path, for the preview as for an endpoint.
func TestRefusedPoliciesAreNamedWithTheirPath(t *testing.T) {
	t.Parallel()
	const (
		delay    = "must be between 1ms and 720h"
		noPreset = `there is no preset "fastest"; there are default, exponential-1h, full-jitter, steps-90m, steps-36h, standard-webhooks and fast`
	)
	b := setup(t)
	id := b.endpoint(t)
	for policy, want := range map[string][]string{
		`{"base":"0s"}`:      {"retry_policy.base", delay},
		`{"base":"-1s"}`:     {"retry_policy.base", delay},
		`{"base":10}`:        {"retry_policy.base", `must be a duration such as "30s" or "72h"`},
		`{"base":"NaN"}`:     {"retry_policy.base", `must be a duration such as "30s" or "72h"`},
		`{"cap":"0s"}`:       {"retry_policy.cap", delay},
		`{"factor":0}`:       {"retry_policy.factor", "must be between 1 and 100"},
		`{"factor":-3}`:      {"retry_policy.factor", "must be between 1 and 100"},
		`{"factor":"NaN"}`:   {"retry_policy.factor", "must be a number"},
		`{"max_attempts":0}`: {"retry_policy.max_attempts", "must be between 1 and 1000"},
		`{"ambiguous_attempts":4}`: {
			"retry_policy.ambiguous_attempts",
			`was replaced by ambiguous_delays, the pauses after consecutive ambiguous outcomes, such as ["1m", "15m", "2h"]`,
		},
		`{"ambiguous_delays":["1m","0s"]}`:               {"retry_policy.ambiguous_delays[1]", delay},
		`{"ambiguous_delays":"1m"}`:                      {"retry_policy.ambiguous_delays", "must be a list of durations"},
		`{"give_up_after":"0s"}`:                         {"retry_policy.give_up_after", "must be between 1s and 720h"},
		`{"min_delay":"-1s"}`:                            {"retry_policy.min_delay", "must be between 0s and 720h"},
		`{"preset":"steps-90m","jitter_ratio":0}`:        {"retry_policy.jitter_ratio", "must be above 0 and at most 1"},
		`{"strategy":"sometimes"}`:                       {"retry_policy.strategy", "must be fixed, linear, exponential or schedule"},
		`{"strategy":"schedule","schedule":["1s","0s"]}`: {"retry_policy.schedule[1]", delay},
		`{"retry_statuses":[404,200]}`:                   {"retry_policy.retry_statuses[1]", "must be a status from 100 to 999 other than 2xx and 3xx"},
		`{"permanent_statuses":[302]}`:                   {"retry_policy.permanent_statuses[0]", "must be a status from 100 to 999 other than 2xx and 3xx"},
		`{"base":"0s","factor":0}`:                       {"retry_policy.base", delay, "retry_policy.factor", "must be between 1 and 100"},
		`{"bsae":"1s"}`:                                  {"retry_policy.bsae", "is not a setting of a retry policy"},
		`{"preset":"fastest"}`:                           {"retry_policy.preset", noPreset},
		`"fastest"`:                                      {"retry_policy", noPreset},
		`7`:                                              {"retry_policy", "must be a preset's name or an object"},
	} {
		b.refused(t, "admin", "POST", previewPath, `{"retry_policy":`+policy+`}`, want...)
		b.refused(t, "admin", "POST", "/v1/tenants/acme/endpoints", `{"url":"https://example.com/hook","retry_policy":`+policy+`}`, want...)
		b.refused(t, "admin", "PATCH", "/v1/tenants/acme/endpoints/"+id, `{"retry_policy":`+policy+`}`, want...)
		b.refused(t, "operator", "PUT", "/v1/tenants/acme", `{"retry_policy":`+policy+`}`, want...)
	}
	b.refused(t, "ingest", "POST", previewPath, `{}`, "retry_policy", "is required")
	b.refused(t, "ingest", "POST", previewPath, `{"retry_policy":"fast","policy":1}`, "policy", "is not a known field")
	b.refused(t, "ingest", "POST", previewPath, `{"retry_policy":{"base":"1s","base":"2s"}}`, "retry_policy.base", "is given more than once")
}

// ambiguous is an attempt that is expected.
func ambiguous(number int, earliest, nominal, latest string) client.PreviewAmbiguous {
	return client.PreviewAmbiguous{Number: number, Earliest: earliest, Nominal: nominal, Latest: latest, Expected: true}
}
