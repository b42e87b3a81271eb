package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const endpointsPath = "/v1/tenants/acme/endpoints"

func TestEndpointShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/hook?a=1&b=2","event_types":["order.*"]}`)
	id, secret := a.json["id"].(string), a.json["secret"].(string)
	shape := `{"id":"` + id + `","tenant_id":"acme","url":"https://example.com/hook?a=1&b=2","event_types":["order.*"],` +
		`"filter":null,"ordering":{"by":"none"},` +
		`"state":"active",` +
		`"state_reason":null,"state_since":null,"state_by":null,SECRET"signature":"v1","public_key":null,"payload_format":"raw","trace_context":false,` +
		`"timeout":"15s","max_in_flight":10,"rate_limit_per_second":10000,` +
		`"retry_policy":{"preset":"default","strategy":"exponential","base":"10s","factor":3,"cap":"12h","jitter":"equal",` +
		`"max_attempts":16,"ambiguous_delays":["1m","15m","2h","12h","24h"],"give_up_after":"72h",` +
		`"max_retry_after":"12h"},"retry_policy_source":"installation",` +
		`"circuit_breaker":{"enabled":true,"window":"60s","min_requests":20,"failure_ratio":0.5,"cooldown":"30s"},` +
		`"auto_disable":{"exhausted_24h":10,"permanent_streak":100},"success_statuses":[],"auto_replay":false,` +
		`"headers":{},"auth":null,"client_certificate":null,"description":"","metadata":{},` +
		`"created_at":"2026-01-31T09:30:00.123456Z","updated_at":"2026-01-31T09:30:00.123456Z"}`
	require.Equal(t, strings.Replace(shape, "SECRET", `"secret":"`+secret+`",`, 1), strings.TrimSpace(a.text))
	require.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, secret)

	plain := strings.Replace(shape, "SECRET", "", 1)
	const healthy = `"condition":{"code":"healthy","cause":null,"since":null,"last_success_at":"2026-01-31T08:30:00.123456Z","waiting":0,"more":false},`
	plain = strings.Replace(plain, `"created_at"`, healthy+`"created_at"`, 1)
	require.Equal(t, plain, strings.TrimSpace(b.ok(t, http.StatusOK, "admin", "GET", endpointsPath+"/"+id, "").text))
	require.Equal(t, `{"data":[`+plain+`],"next_cursor":null}`, strings.TrimSpace(b.ok(t, http.StatusOK, "admin", "GET", endpointsPath, "").text))
	require.Equal(t, secret, b.ok(t, http.StatusOK, "admin", "GET", endpointsPath+"/"+id+"/secret", "").json["secret"])
	b.ok(t, http.StatusNoContent, "admin", "DELETE", endpointsPath+"/"+id, "")
	b.ok(t, http.StatusNotFound, "admin", "GET", endpointsPath+"/"+id, "")
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/endpoints", `{"url":"https://example.com"}`)
	b.ok(t, http.StatusNotFound, "operator", "GET", "/v1/tenants/nobody/endpoints", "")
}

// full sets every field to a value other than its default.
const full = `{"url":"https://example.com/x","event_types":["order.paid","a.*"],"filter":{"payload": {"a<b":{"$gte":1.0}}},"ordering":{"by":"number"},` +
	`"description":"two\nlines",` +
	`"headers":{"X-Api-Key":"k","authorization":"Bearer x"},` +
	`"timeout":"1.5s","max_in_flight":1000,"rate_limit_per_second":0.5,"retry_policy":{"preset":"fast","max_attempts":3},` +
	`"circuit_breaker":{"enabled":false,"window":"10m","min_requests":5,"failure_ratio":1,"cooldown":"1s"},"auto_disable":false,` +
	`"success_statuses":[302,303],"auto_replay":true,` +
	`"signature":"v1","payload_format":"envelope","trace_context":true,"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","metadata":{"a":"b"}}`

func TestEndpointWithEveryField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, full)
	require.Equal(t, "1.5s", a.json["timeout"])
	require.Equal(t, "envelope", a.json["payload_format"])
	require.Equal(t, false, a.json["auto_disable"])
	require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", a.json["secret"])
	require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b.secrets[b.endpoints[0].ID])

	e := b.endpoints[0]
	require.Equal(t, webhook.CircuitBreaker{Window: 10 * time.Minute, MinRequests: 5, FailureRatio: 1, Cooldown: time.Second}, e.CircuitBreaker)
	require.Equal(t, webhook.AutoDisable{}, e.AutoDisable)
	require.Equal(t, map[string]string{"X-Api-Key": "k", "authorization": "Bearer x"}, e.Headers)
	require.Equal(t, map[string]any{"X-Api-Key": "[redacted]", "authorization": "[redacted]"}, a.json["headers"], "they may be credentials")
	require.Equal(t, 3, e.RetryPolicy.MaxAttempts)
	require.Equal(t, time.Second, e.RetryPolicy.Base, "the rest is the preset's")
	require.InDelta(t, 0.5, e.RateLimit, 0)
	require.True(t, e.AutoReplay)
	require.Equal(t, []int{302, 303}, e.SuccessStatuses)
	require.Equal(t, webhook.PayloadEnvelope, e.PayloadFormat)
	require.True(t, e.TraceContext)
	require.Equal(t, webhook.OrderingNumber, e.Ordering.By)
	require.Equal(t, `{"payload":{"a<b":{"$gte":1.0}}}`, e.Filter.Text())
	require.Equal(t, map[string]any{"payload": map[string]any{"a<b": map[string]any{"$gte": 1.0}}}, a.json["filter"])
}

func TestPatchLeavesReplacesAndResets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := endpointsPath + "/" + b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, full).json["id"].(string)
	before := b.endpoints[0]

	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{}`)
	before.Version++
	require.Equal(t, before, b.endpoints[0], "absent is unchanged")

	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"headers":{"X-Api-Key":"[redacted]","Authorization":"Bearer y"}}`)
	require.Equal(t, map[string]string{"X-Api-Key": "k", "Authorization": "Bearer y"}, b.endpoints[0].Headers, "a redacted value is kept")
	b.refused(t, "admin", "PATCH", path, `{"headers":{"X-Other":"[redacted]"}}`,
		"headers.X-Other", "is [redacted], which only stands for a stored value; send the value itself")

	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"timeout":"2s","headers":{"X-New":"1"},"circuit_breaker":{"min_requests":9},`+
		`"retry_policy":{"max_attempts":7},"auto_disable":{"exhausted_24h":3}}`)
	want := before
	want.Version += 2 // with the one before
	want.Timeout, want.Headers = 2*time.Second, map[string]string{"X-New": "1"}
	want.CircuitBreaker = webhook.DefaultCircuitBreaker()
	want.CircuitBreaker.MinRequests = 9
	want.AutoDisable = webhook.AutoDisable{Enabled: true, Exhausted24h: 3, PermanentStreak: 100}
	want.RetryPolicy = b.endpoints[0].RetryPolicy
	require.Equal(t, want, b.endpoints[0], "objects are replaced as a whole")
	require.Equal(t, 10*time.Second, want.RetryPolicy.Base, "also the policy: no setting of the preset is left")
	require.Equal(t, 7, want.RetryPolicy.MaxAttempts)

	// A policy that GET returns can be sent back.
	policy := b.ok(t, http.StatusOK, "admin", "GET", path, "").text
	_, policy, _ = strings.Cut(policy, `"retry_policy":`)
	policy, _, _ = strings.Cut(policy, `,"retry_policy_source"`)
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"retry_policy":`+policy+`}`)
	want.Version++
	require.Equal(t, want, b.endpoints[0])

	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"event_types":null,"filter":null,"ordering":null,"description":null,"headers":null,"timeout":null,`+
		`"max_in_flight":null,`+
		`"rate_limit_per_second":null,"retry_policy":null,"circuit_breaker":null,"auto_disable":null,`+
		`"success_statuses":null,"auto_replay":null,"signature":null,`+
		`"payload_format":null,"trace_context":null,"metadata":null}`)
	reset := defaultEndpoint()
	reset.Version = want.Version + 1
	reset.ID, reset.TenantID, reset.URL, reset.CreatedAt, reset.UpdatedAt = want.ID, want.TenantID, want.URL, want.CreatedAt, want.UpdatedAt
	require.Equal(t, reset, b.endpoints[0], "null is the default")

	b.refused(t, "admin", "PATCH", path, `{"url":null,"secret":"whsec_x","id":"x","state":"paused"}`, "url", "is required",
		"secret", "is set when the endpoint is created and cannot be changed here", "id", "is not a known field", "state", "is not a known field")
	require.Equal(t, reset, b.endpoints[0])
}

// An automatic timeout is shown as "auto", and is replaced by the next timeout that is set.
func TestAutoTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com/hook","timeout":"auto"}`)
	require.Equal(t, "auto", a.json["timeout"])
	path := endpointsPath + "/" + a.json["id"].(string)
	want := defaultEndpoint()
	want.AutoTimeout = true
	require.Equal(t, []any{want.Timeout, true}, []any{b.endpoints[0].Timeout, b.endpoints[0].AutoTimeout})
	require.Equal(t, "auto", b.ok(t, http.StatusOK, "admin", "GET", path, "").json["timeout"])
	require.Equal(t, "auto", b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"description":"x"}`).json["timeout"])
	for _, c := range [][2]string{{`"2s"`, "2s"}, {`"\u0061uto"`, "auto"}, {`null`, "15s"}} {
		require.Equal(t, c[1], b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"timeout":`+c[0]+`}`).json["timeout"], c[0])
		require.Equal(t, c[1] == "auto", b.endpoints[0].AutoTimeout)
	}
}

func TestEndpointRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf(`"t%d"`, i))
	}
	standIns := strings.NewReplacer("U,", `"url":"https://example.com",`, "MANY", strings.Join(many, ","),
		"LONGTEXT", strings.Repeat("ä", 1025), "LONG", strings.Repeat("x", 2048))
	for fields, want := range map[string][]string{
		``:                            {"url", "is required"},
		`"url":null`:                  {"url", "is required"},
		`"url":"http://example.com"`:  {"url", "only https is allowed"},
		`"url":7`:                     {"url", "must be a string"},
		`"url":"https://e.com/LONG/"`: {"url", "must not be longer than 2048 bytes"},

		`U,"event_types":[]`:  {"event_types", "must name at least one event type; omit it for all types"},
		`U,"event_types":"*"`: {"event_types", "must be an array"},
		`U,"event_types":["a","A B","a",1]`: {
			"event_types[1]", notAFilter, "event_types[2]", "is listed more than once", "event_types[3]", "must be a string",
		},
		`U,"event_types":["*.paid","a*"]`: {
			"event_types[0]", notAFilter, "event_types[1]", notAFilter,
		},
		`U,"filter":[]`:                                     {"filter", "must be an object"},
		`U,"filter":{"data":1}`:                             {"filter at /data", noField},
		`U,"filter":{"payload":{"a/b":{"$gt":true}}}`:       {"filter at /payload/a~1b/$gt", "takes a number or a string"},
		`U,"filter":{"type":"a","type":"b"}`:                {"filter.type", "is given more than once"},
		`U,"filter":{"payload":"LONG_LONG_LONG_LONG_LONG"}`: {"filter", "is larger than 8192 bytes"},
		`U,"event_types":[MANY]`:                            {"event_types", "has more than 100 entries"},
		`U,"timeout":"0s"`:                                  {"timeout", `must be "auto", or a duration from "1s" to "30s"`},
		`U,"timeout":"31s"`:                                 {"timeout", `must be "auto", or a duration from "1s" to "30s"`},
		`U,"timeout":"soon"`:                                {"timeout", `must be "auto", or a duration from "1s" to "30s"`},
		`U,"timeout":15`:                                    {"timeout", `must be "auto", or a duration in quotes, such as "15s"`},
		`U,"timeout":true`:                                  {"timeout", `must be "auto", or a duration in quotes, such as "15s"`},
		`U,"timeout":"Auto"`:                                {"timeout", `must be "auto", or a duration from "1s" to "30s"`},
		`U,"timeout":"automatic"`:                           {"timeout", `must be "auto", or a duration from "1s" to "30s"`},
		`U,"max_in_flight":0`:                               {"max_in_flight", "must be a whole number from 1 to 1000"},
		`U,"max_in_flight":1.0`:                             {"max_in_flight", "must be a whole number from 1 to 1000"},
		`U,"max_in_flight":99999999999999999999`:            {"max_in_flight", "must be a whole number from 1 to 1000"},
		`U,"max_in_flight":"1"`:                             {"max_in_flight", "must be a whole number"},
		`U,"rate_limit_per_second":0`:                       {"rate_limit_per_second", "must be a number from 0.01 to 10000"},
		`U,"rate_limit_per_second":1e999`:                   {"rate_limit_per_second", "must be a number from 0.01 to 10000"},
		`U,"rate_limit_per_second":"1"`:                     {"rate_limit_per_second", "must be a number"},
		`U,"auto_replay":1`:                                 {"auto_replay", "must be true or false"},
		`U,"success_statuses":302`:                          {"success_statuses", "must be an array"},
		`U,"success_statuses":[302,304,302,200,"x"]`: {
			"success_statuses[1]", "must be 301, 302, 303, 307 or 308", "success_statuses[2]", "is listed more than once",
			"success_statuses[3]", "must be a whole number from 301 to 308", "success_statuses[4]", "must be a whole number",
		},
		`U,"success_statuses":[301,302,303,307,308,301]`: {"success_statuses", "has more than 5 entries"},
		`U,"signature":"v2"`:                             {"signature", `must be "v1", "v1a" or "hex"`},
		`U,"payload_format":"Raw"`:                       {"payload_format", `must be "raw" or "envelope"`},
		`U,"payload_format":1`:                           {"payload_format", "must be a string"},
		`U,"trace_context":1`:                            {"trace_context", "must be true or false"},
		`U,"secret":"whsec_short"`:                       {"secret", noSecret},
		`U,"secret":"whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="`: {
			"secret", `must begin with whsec_, because the endpoint's signature is "v1"`,
		},
		`U,"auto_disable":true`: {"auto_disable", "must be an object or false"},
		`U,"auto_disable":{"exhausted_24h":0,"x":1}`: {
			"auto_disable.exhausted_24h", "must be a whole number from 1 to 1000000", "auto_disable.x", "is not a known field",
		},
		`U,"circuit_breaker":{"failure_ratio":1.1,"window":"11m","cooldown":"1ms","min_requests":null}`: {
			"circuit_breaker.failure_ratio", "must be a number from 0.01 to 1", "circuit_breaker.window", `must be a duration from "1s" to "600s"`,
			"circuit_breaker.cooldown", `must be a duration from "1s" to "600s"`,
		},
		`U,"metadata":[]`:            {"metadata", "must be an object"},
		`U,"description":"LONGTEXT"`: {"description", "is longer than 1024 characters"},
		`U,"state":"active"`:         {"state", "is not a known field"},
		`"url":"https://10.0.0.1:22","y":1`: {
			"url", "the address is not public", "url", "port 22 is not allowed", "y", "is not a known field",
		},
		`"url":"x","timeout":"0s","y":1`: {
			"url", "only https is allowed", "timeout", `must be "auto", or a duration from "1s" to "30s"`, "y", "is not a known field",
		},
	} {
		b.refused(t, "admin", "POST", endpointsPath, "{"+standIns.Replace(fields)+"}", want...)
	}
	require.Empty(t, b.endpoints)
}

// Errors of a policy are those of package retry, with the field's path in front.
func TestRetryPolicyErrorsHaveTheirPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for policy, fields := range map[string][]string{
		`"nope"`:                         {"retry_policy"},
		`{"base":"0s","max_attempts":0}`: {"retry_policy.base", "retry_policy.max_attempts"},
		`{"strategy":"schedule","schedule":["1s","-1s"]}`: {"retry_policy.schedule[1]"},
		`{"bases":"1s"}`:            {"retry_policy.bases"},
		`7`:                         {"retry_policy"},
		`{"base":"1s","base":"1s"}`: {"retry_policy.base"},
	} {
		a := b.ok(t, http.StatusBadRequest, "admin", "POST", endpointsPath, `{"url":"https://example.com","retry_policy":`+policy+`}`)
		var got []string
		for i, text := range fieldsOf(t, a) {
			if i%2 == 0 {
				got = append(got, text)
			}
		}
		require.Equal(t, fields, got, "%s: %s", policy, a.text)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	send := func(headers string) string { return `{"url":"https://example.com","headers":{` + headers + `}}` }
	for _, name := range []string{
		"webhook-id", "Webhook-Anything", "everpost-attempt", "EVERPOST-X", "Host", "content-length", "Transfer-Encoding", "Connection",
		"Sec-Fetch-Site", "sec-fetch-mode", "Forwarded", "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Anything",
		"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Expect",
	} {
		b.refused(t, "admin", "POST", endpointsPath, send(`"`+name+`":"x"`), "headers."+name, "is reserved and cannot be set")
	}
	for _, name := range []string{"", "a b", "a:b", "ä", "a\t", "(a)", "a/b"} {
		b.refused(t, "admin", "POST", endpointsPath, send(fmt.Sprintf(`%q:"x"`, name)), "headers."+name, "is not the name of a header")
	}
	for _, value := range []string{`a\r\nX: y`, `a\nb`, ` a`, `a `, `\u007f`, `ä`, `a\u0001`} {
		b.refused(t, "admin", "POST", endpointsPath, send(`"X-A":"`+value+`"`), "headers.X-A", "must be printable ASCII, without spaces at its ends")
	}
	b.refused(t, "admin", "POST", endpointsPath, send(`"X-A":"1","x-a":"2"`), "headers.x-a", "is given more than once; case makes no difference")
	b.refused(t, "admin", "POST", endpointsPath, send(`"X-A":null`), "headers.X-A", "must be a string")
	b.refused(t, "admin", "POST", endpointsPath, send(`"X-A":"`+strings.Repeat("x", 4094)+`"`), "headers.X-A",
		"is larger than 4096 bytes, name and value together")
	b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, send(`"X-A":"`+strings.Repeat("x", 4093)+`","X-B":"","X-C":"a\tb c"`))

	var many []string
	for i := range webhook.MaxHeaders {
		many = append(many, fmt.Sprintf(`"X-%d":"v"`, i))
	}
	b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, send(strings.Join(many, ",")))
	b.refused(t, "admin", "POST", endpointsPath, send(strings.Join(append(many, `"X-More":"v"`), ",")), "headers", "has more than 20 entries")
}
