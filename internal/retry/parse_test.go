package retry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/retry"
)

// parsed returns the policy of a valid text.
func parsed(t *testing.T, text string) retry.Policy {
	t.Helper()
	policy, err := retry.ParsePolicy([]byte(text))
	require.NoError(t, err, text)
	require.NoError(t, policy.Validate(), text)

	return policy
}

func preset(t *testing.T, name string) retry.Policy {
	t.Helper()
	policy, found := retry.Lookup(name)
	require.True(t, found)

	return policy
}

func TestMarshalDefault(t *testing.T) {
	t.Parallel()

	text, err := json.Marshal(retry.Default())
	require.NoError(t, err)
	require.Equal(t, `{"preset":"default","strategy":"exponential","base":"10s","factor":3,"cap":"12h","jitter":"equal",`+
		`"max_attempts":16,"ambiguous_delays":["1m","15m","2h","12h","24h"],"give_up_after":"72h","max_retry_after":"12h"}`, string(text))

	zero, err := json.Marshal(struct {
		Policy retry.Policy `json:"retry_policy"`
	}{})
	require.NoError(t, err)
	require.Equal(t, `{"retry_policy":`+string(text)+`}`, string(zero))
}

func TestMarshalOnlyWhatIsUsed(t *testing.T) {
	t.Parallel()

	text, err := json.Marshal(parsed(t, `{"preset":"steps-90m","max_attempts":3,"retry_statuses":[410],"permanent_statuses":[500]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"preset":"steps-90m","strategy":"schedule","schedule":["30s","2m","10m","1h"],"jitter":"proportional",
		"jitter_ratio":0.2,"max_attempts":3,"ambiguous_delays":["1m","15m","2h","12h","24h"],"give_up_after":"72h",
		"max_retry_after":"12h","retry_statuses":[410],"permanent_statuses":[500]}`, string(text))

	text, err = json.Marshal(parsed(t, `{"preset":"full-jitter","min_delay":"0s"}`))
	require.NoError(t, err)
	require.Contains(t, string(text), `"min_delay":"0s"`, "left out it would be the preset's again")

	text, err = json.Marshal(parsed(t, `{"preset":"standard-webhooks","retry_statuses":[],"ambiguous_delays":[]}`))
	require.NoError(t, err)
	require.Contains(t, string(text), `"retry_statuses":[]`, "left out it would be the preset's again")
	require.Contains(t, string(text), `"ambiguous_delays":[]`)
	require.NotContains(t, string(text), "permanent_statuses")
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()

	require.Equal(t, retry.Default(), parsed(t, `null`))
	require.Equal(t, retry.Default(), parsed(t, `{}`))
	require.Equal(t, retry.Default(), parsed(t, ` {"base": null, "factor": 3} `))
	require.Equal(t, preset(t, "fast"), parsed(t, `"fast"`))
	require.Equal(t, preset(t, "fast"), parsed(t, `{"preset":"fast"}`))

	want := retry.Default()
	want.MaxAttempts = 20
	require.Equal(t, want, parsed(t, `{"preset":"default","max_attempts":20}`))
	want.Preset = ""
	require.Equal(t, want, parsed(t, `{"max_attempts":20}`), "no longer a preset, as none was named")

	want = preset(t, "fast")
	want.Base, want.Cap = 250*time.Millisecond, 90*time.Second
	require.Equal(t, want, parsed(t, `{"base":"250ms","preset":"fast","cap":"1m30s"}`), "the order of fields is not significant")

	require.Equal(t, retry.Policy{
		Strategy: retry.StrategyFixed, Base: time.Second, MaxAttempts: 3, GiveUpAfter: 72 * time.Hour, MaxRetryAfter: 12 * time.Hour,
		AmbiguousDelays: retry.DefaultAmbiguousDelays(),
	}, parsed(t, `{"strategy":"fixed","base":"1s","jitter":"none","max_attempts":3,"factor":2,"cap":"1h"}`),
		"what the named strategy does not use is dropped")

	want = retry.Default()
	want.Preset, want.Strategy, want.Factor, want.Cap = "", retry.StrategySchedule, 0, 0
	want.Base, want.Schedule = 0, []time.Duration{time.Second, time.Minute}
	require.Equal(t, want, parsed(t, `{"strategy":"schedule","schedule":["1s","60s"]}`))

	want = preset(t, "steps-90m")
	want.Strategy, want.Schedule, want.Base, want.Factor, want.Cap = retry.StrategyExponential, nil, 10*time.Second, 3, 12*time.Hour
	require.Equal(t, want, parsed(t, `{"preset":"steps-90m","strategy":"exponential"}`), "what the preset lacks is the default's")

	want = retry.Default()
	want.Preset, want.AmbiguousDelays = "", []time.Duration{time.Millisecond, 720 * time.Hour}
	require.Equal(t, want, parsed(t, `{"ambiguous_delays":["1ms","720h"]}`))
	require.Empty(t, parsed(t, `{"ambiguous_delays":[]}`).AmbiguousDelays)
	require.Len(t, parsed(t, `{"ambiguous_delays":[`+strings.Repeat(`"1s",`, 19)+`"1s"]}`).AmbiguousDelays, 20)

	// A given status is removed from the preset's other list.
	webhooks := parsed(t, `{"preset":"standard-webhooks","permanent_statuses":[400,404,500]}`)
	require.Equal(t, "standard-webhooks", webhooks.Preset)
	require.Equal(t, []int{400, 404, 500}, webhooks.PermanentStatuses)
	require.Len(t, webhooks.RetryStatuses, len(preset(t, "standard-webhooks").RetryStatuses)-2)
	require.NotContains(t, webhooks.RetryStatuses, 404)
	require.Equal(t, []int{410}, parsed(t, `{"preset":"standard-webhooks","retry_statuses":[410]}`).RetryStatuses)

	require.InDelta(t, retry.DefaultJitterRatio, parsed(t, `{"jitter":"proportional"}`).JitterRatio, 0)
	decorrelated := parsed(t, `{"strategy":"fixed","base":"1s","jitter":"decorrelated","cap":"1m"}`)
	require.Equal(t, time.Minute, decorrelated.Cap)
}

func TestParsePolicyRefuses(t *testing.T) {
	t.Parallel()

	table := []struct {
		text   string
		fields string // in order, separated by spaces; "." is the whole policy
	}{
		{``, "."}, {`{`, "."}, {`{} {}`, "."}, {`{"base":"1s",}`, "."}, {`true`, "."}, {`17`, "."}, {`[]`, "."},
		{"\"\xff\"", "."}, {`"` + strings.Repeat("x", 1<<17) + `"`, "."},
		{`"nonsense"`, "."}, {`""`, "."}, {`"Default"`, "."},
		{`{"preset":"nonsense"}`, "preset"}, {`{"preset":7}`, "preset"}, {`{"preset":""}`, "preset"},
		{`{"bse":"1s"}`, "bse"}, {`{"Base":"1s"}`, "Base"}, {`{"":1}`, "."}, {`{"bse":null}`, "bse"},
		{`{"base":"1s","base":"2s"}`, "base"}, {`{"base":"1s","b\u0061se":"2s"}`, "base"},
		{`{"strategy":"random"}`, "strategy"}, {`{"strategy":""}`, "strategy"}, {`{"strategy":3}`, "strategy"},
		{`{"strategy":"Fixed"}`, "strategy"}, {`{"jitter":"some"}`, "jitter"}, {`{"jitter":""}`, "jitter"},
		{`{"base":10}`, "base"}, {`{"base":"10"}`, "base"}, {`{"base":""}`, "base"}, {`{"base":"NaN"}`, "base"},
		{`{"base":"0s"}`, "base"}, {`{"base":"-1s"}`, "base"}, {`{"base":"999us"}`, "base"}, {`{"base":"721h"}`, "base"},
		{`{"base":"9999999999h"}`, "base"}, {`{"base":"24h"}`, "base"}, {`{"cap":"5s"}`, "cap"}, {`{"cap":"0s"}`, "cap"},
		{`{"base":"2h","cap":"1h"}`, "cap"}, {`{"cap":"721h"}`, "cap"}, {`{"cap":"-1h"}`, "cap"},
		{`{"factor":0}`, "factor"}, {`{"factor":-1}`, "factor"}, {`{"factor":0.99}`, "factor"}, {`{"factor":101}`, "factor"},
		{`{"factor":"3"}`, "factor"}, {`{"factor":"NaN"}`, "factor"}, {`{"factor":1e999}`, "factor"}, {`{"factor":NaN}`, "."},
		{`{"jitter":"proportional","jitter_ratio":0}`, "jitter_ratio"}, {`{"jitter":"proportional","jitter_ratio":1.01}`, "jitter_ratio"},
		{`{"jitter":"proportional","jitter_ratio":-0.1}`, "jitter_ratio"}, {`{"preset":"steps-90m","jitter_ratio":"x"}`, "jitter_ratio"},
		{`{"max_retry_after":"-1ns"}`, "max_retry_after"}, {`{"max_retry_after":"721h"}`, "max_retry_after"},
		{`{"max_retry_after":"a week"}`, "max_retry_after"},
		{`{"min_delay":"-1ns"}`, "min_delay"}, {`{"min_delay":"13h"}`, "min_delay"}, {`{"min_delay":"721h"}`, "min_delay"},
		{`{"strategy":"fixed","min_delay":"11s"}`, "min_delay"}, {`{"preset":"steps-90m","min_delay":"61m"}`, "min_delay"},
		{`{"max_attempts":0}`, "max_attempts"}, {`{"max_attempts":-1}`, "max_attempts"}, {`{"max_attempts":1001}`, "max_attempts"},
		{`{"max_attempts":1.5}`, "max_attempts"}, {`{"max_attempts":"5"}`, "max_attempts"}, {`{"max_attempts":99999999999999999999}`, "max_attempts"},
		{`{"ambiguous_attempts":4}`, "ambiguous_attempts"}, {`{"ambiguous_attempts":null}`, "ambiguous_attempts"},
		{`{"ambiguous_delays":4}`, "ambiguous_delays"}, {`{"ambiguous_delays":"1m"}`, "ambiguous_delays"},
		{`{"ambiguous_delays":["1m","0s","x",null,60,"721h","-1s"]}`,
			"ambiguous_delays[2] ambiguous_delays[3] ambiguous_delays[4] ambiguous_delays[1] ambiguous_delays[5] ambiguous_delays[6]"},
		{`{"ambiguous_delays":["1m","0s","721h","-1s"]}`, "ambiguous_delays[1] ambiguous_delays[2] ambiguous_delays[3]"},
		{`{"ambiguous_delays":[` + strings.Repeat(`"1s",`, 20) + `"1s"]}`, "ambiguous_delays"},
		{`{"give_up_after":"999ms"}`, "give_up_after"}, {`{"give_up_after":"721h"}`, "give_up_after"}, {`{"give_up_after":"0s"}`, "give_up_after"},
		{`{"give_up_after":72}`, "give_up_after"},
		{`{"strategy":"schedule"}`, "schedule"}, {`{"strategy":"schedule","schedule":[]}`, "schedule"},
		{`{"strategy":"schedule","schedule":"1s"}`, "schedule"}, {`{"strategy":"schedule","schedule":{}}`, "schedule"},
		{`{"strategy":"schedule","schedule":["1s","x","2s",null,"0s"]}`, "schedule[1] schedule[3] schedule[4]"},
		{`{"strategy":"schedule","schedule":["1s","0s","-2s","721h"]}`, "schedule[1] schedule[2] schedule[3]"},
		{`{"strategy":"schedule","schedule":[` + strings.Repeat(`"1s",`, 100) + `"1s"]}`, "schedule"},
		{`{"strategy":"schedule","schedule":["1s"],"jitter":"decorrelated"}`, "jitter"},
		{`{"retry_statuses":[200]}`, "retry_statuses[0]"},
		{`{"retry_statuses":[404,302,299,300,399,400]}`,
			"retry_statuses[1] retry_statuses[2] retry_statuses[3] retry_statuses[4]"},
		{`{"retry_statuses":[0,-1,99,1000]}`, "retry_statuses[0] retry_statuses[1] retry_statuses[2] retry_statuses[3]"},
		{`{"retry_statuses":[404,404]}`, "retry_statuses[1]"},
		{`{"permanent_statuses":["404",null,4.5]}`,
			"permanent_statuses[0] permanent_statuses[1] permanent_statuses[2]"},
		{`{"retry_statuses":[404],"permanent_statuses":[500,404]}`, "permanent_statuses[1]"}, {`{"retry_statuses":404}`, "retry_statuses"},

		// Settings without effect, which may be a mistake.
		{`{"schedule":["1s"]}`, "schedule"}, {`{"preset":"steps-90m","base":"1m"}`, "base"}, {`{"jitter_ratio":0.5}`, "jitter_ratio"},
		{`{"preset":"steps-90m","cap":"1m","factor":2}`, "factor cap"},
		// Settings that are knowingly without effect, but out of bounds.
		{`{"strategy":"fixed","factor":0,"cap":"0s","schedule":["0s"],"jitter":"full","jitter_ratio":7}`, "factor cap schedule[0] jitter_ratio"},
		{`{"strategy":"schedule","schedule":["1s"],"base":"-1s"}`, "base"},

		// All errors at once.
		{`{"base":"0s","factor":0,"cap":"x","jitter":"full","min_delay":1,"max_attempts":0,"ambiguous_delays":["0s"],"give_up_after":"0s","what":1}`,
			"cap min_delay what base factor max_attempts ambiguous_delays[0] give_up_after"},
	}
	for _, row := range table {
		_, err := retry.ParsePolicy([]byte(row.text))
		var refused retry.FieldErrors
		require.ErrorAs(t, err, &refused, "%.200s", row.text)
		var fields []string
		for _, one := range refused {
			require.NotEmpty(t, one.Message)
			require.Contains(t, err.Error(), one.Message)
			fields = append(fields, one.Field)
			if one.Field == "" {
				fields[len(fields)-1] = "."
			}
		}
		require.Equal(t, row.fields, strings.Join(fields, " "), "%.200s: %v", row.text, err)
	}
}

func TestUnmarshalPolicy(t *testing.T) {
	t.Parallel()

	var endpoint struct {
		Policy retry.Policy `json:"retry_policy"`
	}
	require.NoError(t, json.Unmarshal([]byte(`{"retry_policy":"fast"}`), &endpoint))
	require.Equal(t, preset(t, "fast"), endpoint.Policy)

	err := json.Unmarshal([]byte(`{"retry_policy":{"base":"0s"}}`), &endpoint)
	var refused retry.FieldErrors
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "base", refused[0].Field)
	require.Equal(t, preset(t, "fast"), endpoint.Policy, "unchanged")
}

func TestValidateOfLiterals(t *testing.T) {
	t.Parallel()

	policy := retry.Policy{Jitter: 99, MinDelay: -1, MaxRetryAfter: -1, RetryStatuses: make([]int, 101), AmbiguousDelays: make([]time.Duration, 21)}
	var refused retry.FieldErrors
	require.ErrorAs(t, policy.Validate(), &refused)
	fields := map[string]bool{}
	for _, one := range refused {
		fields[one.Field] = true
	}
	for _, field := range []string{"strategy", "jitter", "min_delay", "max_attempts", "ambiguous_delays", "give_up_after", "max_retry_after",
		"retry_statuses"} {
		require.True(t, fields[field], field)
	}

	policy = retry.Default()
	policy.AmbiguousDelays = []time.Duration{time.Minute, -1}
	require.ErrorContains(t, policy.Validate(), "ambiguous_delays[1]: must be between 1ms and 720h")
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()

	for text, d := range map[string]time.Duration{
		"0s": 0, "1ms": time.Millisecond, "10s": 10 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second,
		"10m": 10 * time.Minute, "12h": 12 * time.Hour, "1h0m10s": time.Hour + 10*time.Second,
		"1h10m": 70 * time.Minute, "10h": 10 * time.Hour, "72h": 72 * time.Hour, "720h": 720 * time.Hour, "-2h": -2 * time.Hour,
	} {
		require.Equal(t, text, retry.FormatDuration(d))
	}
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64().Draw(t, "d"))
		if rapid.Bool().Draw(t, "round") {
			want = want.Truncate(time.Minute)
		}
		got, err := time.ParseDuration(retry.FormatDuration(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestParseReadsWhatMarshalWrites: a policy that GET returns can be sent back.
func TestParseReadsWhatMarshalWrites(t *testing.T) {
	t.Parallel()

	for _, one := range retry.Presets() {
		text, err := json.Marshal(one.Policy)
		require.NoError(t, err)
		require.Equal(t, one.Policy, parsed(t, string(text)))
	}
	names := []string{""}
	for _, one := range retry.Presets() {
		names = append(names, one.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := validPolicy().Draw(t, "policy")
		want.Preset = rapid.SampledFrom(names).Draw(t, "preset")
		text, err := json.Marshal(want)
		require.NoError(t, err)
		got, err := retry.ParsePolicy(text)
		require.NoError(t, err, string(text))
		require.True(t, want.Equal(got), "%s became %+v", text, got)
	})
}

func FuzzParsePolicy(f *testing.F) {
	for _, seed := range []string{
		`null`, `"fast"`, `{}`, `{"preset":"steps-36h","max_attempts":3}`, `{"strategy":"fixed","base":"1s"}`,
		`{"strategy":"schedule","schedule":["1s","2m"],"jitter":"proportional","jitter_ratio":0.5}`,
		`{"jitter":"decorrelated","min_delay":"5s","retry_statuses":[404,410],"permanent_statuses":[500]}`,
		`{"base":"0s","factor":-1,"x":1,"x":2}`, `{"preset":"full-jitter","min_delay":"0s"}`,
		`{"ambiguous_delays":["1m","2h"]}`, `{"ambiguous_delays":[]}`, `{"ambiguous_delays":["0s",null]}`, `{"ambiguous_attempts":4}`,
		`{"preset":"standard-webhooks","retry_statuses":[]}`, `{"preset":"standard-webhooks","permanent_statuses":[404]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		policy, err := retry.ParsePolicy(raw)
		if err != nil {
			var refused retry.FieldErrors
			require.ErrorAs(t, err, &refused)
			require.NotEmpty(t, refused)
			require.True(t, policy.IsZero())

			return
		}
		require.NoError(t, policy.Validate())
		text, err := json.Marshal(policy)
		require.NoError(t, err)
		again, err := retry.ParsePolicy(text)
		require.NoError(t, err, string(text))
		require.True(t, policy.Equal(again), "%s", text)
		require.NotEmpty(t, retry.Preview(policy))
		require.NotEmpty(t, retry.PreviewAmbiguous(policy))
		fromSetting, err := retry.ParseSetting(string(text))
		require.NoError(t, err)
		require.True(t, policy.Equal(fromSetting))
	})
}

// TestParseSetting: a preset's name without quotes, or what the API accepts.
func TestParseSetting(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"fast": `"fast"`, " fast\n": `"fast"`, `"fast"`: `"fast"`, `{"preset":"fast","max_attempts":3}`: `{"preset":"fast","max_attempts":3}`,
		" {} ": `{}`,
	} {
		got, err := retry.ParseSetting(text)
		require.NoError(t, err, text)
		require.Equal(t, parsed(t, want), got)
	}
	const presets = "; there are default, exponential-1h, full-jitter, steps-90m, steps-36h, standard-webhooks and fast"
	for text, message := range map[string]string{
		"":               `there is no preset ""` + presets,
		"fats":           `there is no preset "fats"` + presets,
		"null":           `there is no preset "null"` + presets,
		`"fats"`:         `there is no preset "fats"` + presets,
		`{"base":"0s"}`:  "base: must be between 1ms and 720h",
		`{"base":"1s"`:   "is not valid JSON",
		`["fast"]`:       "must be a preset's name or an object",
		`{"retries": 3}`: "retries: is not a setting of a retry policy",
		`{"ambiguous_attempts": 3}`: "ambiguous_attempts: was replaced by ambiguous_delays, the pauses after consecutive ambiguous outcomes, " +
			`such as ["1m", "15m", "2h"]`,
	} {
		_, err := retry.ParseSetting(text)
		var refused retry.FieldErrors
		require.ErrorAs(t, err, &refused, text)
		require.ErrorContains(t, err, message)
	}
}

// Policies stored by a release without ambiguous_delays, and standard-webhooks without
// statuses, get those settings from the current presets.
func TestParseOfWhatIsStored(t *testing.T) {
	t.Parallel()

	require.Equal(t, preset(t, "standard-webhooks"), parsed(t, `{"preset":"standard-webhooks","strategy":"schedule",
		"schedule":["5s","5m","30m","2h","5h","10h","14h","20h","24h"],"jitter":"proportional","jitter_ratio":0.1,
		"max_attempts":10,"give_up_after":"84h"}`))
	require.Equal(t, retry.Default(), parsed(t, `{"preset":"default","strategy":"exponential","base":"10s","factor":3,"cap":"12h",
		"jitter":"equal","max_attempts":16,"give_up_after":"72h"}`))
}
