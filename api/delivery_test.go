package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const deliveriesPath = "/v1/tenants/acme/deliveries"

func TestDeliveryShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	d := &b.deliveries[0]
	ids := fmt.Sprintf(`{"id":%q,"event_id":%q,"endpoint_id":%q,"event_type":"order.paid","external_id":null,`, delivery, event, d.EndpointID)
	workflow := fmt.Sprintf(`"workflow_id":"delivery/%s/%s","workflow_url":"http://ui.example/delivery%%2F%s%%2F%s",`, event, d.EndpointID, event, d.EndpointID)
	shown := fmt.Sprintf(`"workflow":"Its workflow is delivery/%s/%s."`, event, d.EndpointID)
	get := func() string {
		return strings.TrimSpace(b.ok(t, http.StatusOK, "operator", "GET", deliveriesPath+"/"+delivery, "").text)
	}
	require.Equal(t, ids+`"state":"pending","reason":null,"summary":"Accepted at 09:30:00 UTC, 0 s ago; `+
		`attempt 1 is about to be made, or under way.","run":1,"attempts":0,"last_outcome":null,"last_error":null,"next_attempt_at":null,`+
		`"give_up_at":"2026-02-03T09:30:00.123456Z","held_at":null,"created_at":"2026-01-31T09:30:00.123456Z","completed_at":null,`+workflow+
		`"explanation":{"code":"starting","brief":null,"cause":null,"next":"Attempt 1 is made as soon as a worker takes `+
		`it.","remedy":null,"operator":null,"actions":[],`+
		`"workflow":"Its workflow is delivery/`+event+`/`+d.EndpointID.String()+`.","until":"2026-02-03T09:30:00.123456Z"}}`, get())

	d.State, d.Attempts, d.DueAt, d.LastError = webhook.StateRetrying, 2, testNow().Add(time.Second), "the vault did not answer"
	d.LastOutcome = &webhook.LastOutcome{
		Decision: retry.Retry, Reason: "http_503", Status: 503, Latency: 41 * time.Millisecond, At: testNow(), RetryAfter: time.Second,
	}
	require.Equal(t, ids+`"state":"retrying","reason":null,"summary":"A fault of Everpost, not of the receiver, delays attempt 3: the vault did not answer; `+
		`tried again until 3 Feb 09:30 UTC.","run":1,"attempts":2,"last_outcome":{"decision":"retry","reason":"http_503",`+
		`"status":503,"latency_ms":41,"at":"2026-01-31T09:30:00.123456Z","retry_after_ms":1000},`+
		`"last_error":"the vault did not answer","next_attempt_at":"2026-01-31T09:30:01.123456Z","give_up_at":"2026-02-03T09:30:00.123456Z","held_at":null,`+
		`"created_at":"2026-01-31T09:30:00.123456Z","completed_at":null,`+workflow+
		`"explanation":{"code":"internal_fault","brief":"fault of Everpost: not of the receiver","cause":"The vault did not answer. `+
		`No attempt is counted, and nothing is recorded against the endpoint.","next":"It continues when the fault has ended.",`+
		`"remedy":null,"operator":"The worker's log has the cause.","actions":[],`+shown+`,"until":"2026-02-03T09:30:00.123456Z"}}`, get())

	d.State, d.Reason, d.LastError, d.CompletedAt = webhook.StateDeadLettered, "connect_refused", "", testNow()
	d.LastOutcome = &webhook.LastOutcome{Decision: retry.Permanent, Reason: "connect_refused", At: testNow()}
	require.Equal(t, ids+`"state":"dead_lettered","reason":"connect_refused",`+
		`"summary":"Given up at 09:30:00 UTC, 0 s after it was accepted: attempt 2 failed: the receiver at example.com refused the connection, `+
		`which is final; kept as a dead letter.","run":1,"attempts":2,"last_outcome":{"decision":"permanent",`+
		`"reason":"connect_refused","status":null,"latency_ms":0,"at":"2026-01-31T09:30:00.123456Z","retry_after_ms":null},`+
		`"last_error":null,"next_attempt_at":null,"give_up_at":"2026-02-03T09:30:00.123456Z","held_at":null,"created_at":"2026-01-31T09:30:00.123456Z",`+
		`"completed_at":"2026-01-31T09:30:00.123456Z",`+workflow+
		`"explanation":{"code":"refused","brief":"connection refused: nothing listens there, or a firewall refuses",`+
		`"cause":"The receiver at example.com refused the `+
		`connection.",`+
		`"next":"Nothing more is sent unless a person sends it again; kept as a dead letter.",`+
		`"remedy":"Check that the receiver at example.com runs, and that its load `+
		`balancer and firewall let requests through. It can be sent again, alone or with all dead letters of the endpoint.","operator":null,`+
		`"actions":[{"act":"send_again","id":"`+delivery+`","method":"POST","path":"/v1/tenants/acme/deliveries/`+delivery+`/replay","body":null},`+
		`{"act":"send_dead_letters_again","id":null,"method":"POST","path":"/v1/tenants/acme/replays","body":{"endpoint_id":"`+d.EndpointID.String()+
		`","source":"dead_letters"}}],`+shown+`,"until":null}}`, get())

	for query, want := range map[string]int{
		"": 1, "?state=dead_lettered": 1, "?state=pending": 0, "?state=pending&state=dead_lettered": 1, "?event_id=" + event: 1,
		"?endpoint_id=" + webhook.NewEndpointID().String(): 0,
	} {
		require.Len(t, b.ok(t, http.StatusOK, "ingest", "GET", deliveriesPath+query, "").json["data"], want, query)
	}
	for query, want := range map[string]int{"": 1, "?reason=connect_refused": 1, "?reason=other": 0, "?status=503": 0} {
		require.Len(t, b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/dead-letters"+query, "").json["data"], want, query)
	}
	d.State = webhook.StateDelivered
	require.Empty(t, b.ok(t, http.StatusOK, "ingest", "GET", "/v1/tenants/acme/dead-letters", "").json["data"])
}

// A list, a delivery and the answer to a command have the external id of the event.
func TestDeliveriesHaveExternalIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.posted(t)
	posted := b.ok(t, http.StatusAccepted, "ingest", "POST", "/v1/tenants/acme/events", `{"type":"order.paid","external_id":"order-17","payload":1}`).json
	id := posted["deliveries"].([]any)[0].(map[string]any)["id"].(string)
	listed := map[any]any{}
	for _, d := range b.ok(t, http.StatusOK, "admin", "GET", deliveriesPath, "").json["data"].([]any) {
		of := d.(map[string]any)
		listed[of["event_id"]] = of["external_id"]
	}
	require.Len(t, listed, 2)
	require.Contains(t, slices.Collect(maps.Values(listed)), nil)
	require.Equal(t, "order-17", listed[posted["id"]])
	require.Equal(t, "order-17", b.ok(t, http.StatusOK, "admin", "GET", deliveriesPath+"/"+id, "").json["external_id"])
	require.Equal(t, "order-17", b.ok(t, http.StatusAccepted, "admin", "POST", deliveriesPath+"/"+id+"/cancel", "").json["external_id"])
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, delivery := b.posted(t)
	id := b.deliveries[0].DeliveryID
	b.attempts[id] = []webhook.Attempt{
		{
			Number: 1, Run: 1, StartedAt: testNow(), Latency: 41 * time.Millisecond,
			Times: webhook.Times{
				Names: 1500 * time.Microsecond, Connecting: 9 * time.Millisecond, TLS: 19 * time.Millisecond, Waiting: 11 * time.Millisecond,
			},
			WaitedFor: webhook.ReasonRate, Late: 1500 * time.Millisecond,
			Outcome: retry.Outcome{Decision: retry.Retry, Reason: "http_503", Status: 503, RetryAfter: time.Second},
			Delay:   time.Second, DelaySource: "retry_after", RequestHeaders: map[string]string{"webhook-id": "evt_1"},
			ResponseHeaders: map[string][]string{"Via": {"a", "b"}}, ResponseBody: []byte("busy\xff\x00"), Truncated: true,
		},
		{Number: 2, Run: 1, StartedAt: testNow(), Outcome: retry.Outcome{Decision: retry.Permanent, Reason: retry.ReasonDeniedAddress}, Error: "denied"},
	}
	path := deliveriesPath + "/" + delivery + "/attempts"
	first := b.ok(t, http.StatusOK, "ingest", "GET", path+"?limit=1", "")
	cursor := first.json["next_cursor"].(string)
	require.Equal(t, `{"data":[{"number":2,"run":1,"started_at":"2026-01-31T09:30:00.123456Z","latency_ms":0,"times":null,`+
		`"waited_for":null,"late_ms":null,"status":null,`+
		`"decision":"permanent","reason":"denied_address","error":"denied","retry_after_ms":null,"delay_ms":null,"delay_source":null,`+
		`"request_headers":{},"response_headers":{},"response_body":"","response_truncated":false}],"next_cursor":"`+cursor+`"}`, strings.TrimSpace(first.text))
	second := b.ok(t, http.StatusOK, "ingest", "GET", path+"?limit=1&cursor="+cursor, "")
	require.Equal(t, `{"data":[{"number":1,"run":1,"started_at":"2026-01-31T09:30:00.123456Z","latency_ms":41,`+
		`"times":{"names_ms":1,"connect_ms":9,"tls_ms":19,"wait_ms":11},"waited_for":"rate","late_ms":1500,"status":503,"decision":"retry",`+
		`"reason":"http_503","error":null,"retry_after_ms":1000,"delay_ms":1000,"delay_source":"retry_after",`+
		`"request_headers":{"webhook-id":"evt_1"},"response_headers":{"Via":"a, b"},"response_body":"busy�\u0000","response_truncated":true}],`+
		`"next_cursor":null}`, strings.TrimSpace(second.text))
}

// Attempts to an endpoint and of an event name their deliveries.
func TestAttemptsOfSeveralDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, delivery := b.posted(t)
	d := b.deliveries[0]
	for n := 1; n <= 30; n++ {
		failed := retry.Outcome{Decision: retry.Retry, Reason: "http_503", Status: 503}
		b.attempts[d.DeliveryID] = append(b.attempts[d.DeliveryID], webhook.Attempt{Number: n, Run: 1, StartedAt: testNow(), Outcome: failed})
	}
	for path, key := range map[string]string{"endpoints/" + d.EndpointID.String(): "admin", "events/" + event: "ingest"} {
		first := b.ok(t, http.StatusOK, key, "GET", "/v1/tenants/acme/"+path+"/attempts?limit=28", "")
		require.Len(t, first.json["data"], 28)
		require.Equal(t, delivery, first.json["data"].([]any)[0].(map[string]any)["delivery_id"])
		require.EqualValues(t, 30, first.json["data"].([]any)[0].(map[string]any)["number"])
		rest := b.ok(t, http.StatusOK, key, "GET", "/v1/tenants/acme/"+path+"/attempts?limit=28&cursor="+first.json["next_cursor"].(string), "")
		require.Len(t, rest.json["data"], 2)
		require.Nil(t, rest.json["next_cursor"])
		b.refused(t, key, "GET", "/v1/tenants/acme/"+path+"/attempts?state=held", "", "state", "is not a known parameter")
		b.ok(t, http.StatusNotFound, "foreign", "GET", "/v1/tenants/other/"+path+"/attempts", "")
	}
	b.ok(t, http.StatusForbidden, "ingest", "GET", "/v1/tenants/acme/endpoints/"+d.EndpointID.String()+"/attempts", "")
	b.ok(t, http.StatusNotFound, "admin", "GET", "/v1/tenants/acme/events/"+webhook.NewEventID().String()+"/attempts", "")
}

func TestCancelEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	event, _ := b.posted(t)
	path := "/v1/tenants/acme/events/" + event + "/cancel"
	a := b.ok(t, http.StatusAccepted, "admin", "POST", path, `{"reason":"a mistake"}`)
	require.Equal(t, map[string]any{"event_id": event, "cancelled": 1.}, a.json)
	require.Equal(t, []webhook.PendingCommand{{ID: 7, Command: webhook.CommandCancel, Reason: "a mistake"}}, b.signals)
	b.deliveries[0].State = webhook.StateDelivered
	require.EqualValues(t, 0, b.ok(t, http.StatusAccepted, "admin", "POST", path, "").json["cancelled"])
	require.Len(t, b.signals, 1)
	b.refused(t, "admin", "POST", path, `{"x":1}`, "x", "is not a known field")
	b.ok(t, http.StatusForbidden, "ingest", "POST", path, "")
	b.ok(t, http.StatusNotFound, "admin", "POST", "/v1/tenants/acme/events/"+webhook.NewEventID().String()+"/cancel", "")
}

// Every command × every state, at every address of the command.
func TestCommands(t *testing.T) {
	t.Parallel()
	for address, command := range map[string]webhook.Command{
		"deliveries/ID/cancel": webhook.CommandCancel, "deliveries/ID/retry": webhook.CommandRetry, "deliveries/ID/replay": webhook.CommandReplay,
		"dead-letters/ID/replay": webhook.CommandReplay, "dead-letters/ID/discard": webhook.CommandDiscard,
	} {
		for _, state := range webhook.States() {
			b := setup(t)
			_, delivery := b.posted(t)
			b.deliveries[0].State = state
			path := "/v1/tenants/acme/" + strings.Replace(address, "ID", delivery, 1)
			taken := command.TakenIn(state, false)
			if address == "dead-letters/ID/replay" {
				taken = state == webhook.StateDeadLettered
			}
			if !taken {
				a := b.ok(t, http.StatusConflict, "admin", "POST", path, "")
				require.Equal(t, fmt.Sprintf(`{"type":"https://everpost.dev/errors/conflict","title":"Not possible in the present state",`+
					`"status":409,"detail":"%s is not possible: the delivery is %s","request_id":"req-1","help":"/docs/errors#conflict","state":%q}`,
					command, state, state), strings.TrimSpace(a.text))
				require.Empty(t, b.signals)
				continue
			}
			b.ok(t, http.StatusAccepted, "admin", "POST", path, "")
			require.Equal(t, delivery, b.ok(t, http.StatusAccepted, "admin", "POST", path, " {} ").json["id"])
			require.Equal(t, []webhook.PendingCommand{{ID: 7, Command: command}, {ID: 7, Command: command}}, b.signals)
			b.refused(t, "admin", "POST", path, `{"x":1}`, "x", "is not a known field")
			b.refused(t, "admin", "POST", path, `[]`, "body", "must be an object")
			if command == webhook.CommandRetry {
				b.refused(t, "admin", "POST", path, `{"reason":"x"}`, "reason", "is not a known field")
				continue
			}
			b.ok(t, http.StatusAccepted, "admin", "POST", path, `{"reason":"repaired"}`)
			require.Equal(t, "repaired", b.signals[2].Reason)
			b.ok(t, http.StatusAccepted, "admin", "POST", path, `{"reason":null}`)
			b.refused(t, "admin", "POST", path, `{"reason":"`+strings.Repeat("x", 256)+`"}`, "reason", notPrintable(255))
		}
	}
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, delivery := b.posted(t)
	path := "/v1/tenants/acme/deliveries/" + delivery + "/reschedule"
	at := testNow().Add(time.Hour)
	body := `{"at":"` + at.Format(time.RFC3339Nano) + `"}`
	require.Equal(t, "pending", b.ok(t, http.StatusConflict, "admin", "POST", path, body).json["state"], "it waits for nothing")

	b.deliveries[0].State = webhook.StateRetrying
	require.Equal(t, delivery, b.ok(t, http.StatusAccepted, "admin", "POST", path, body).json["id"])
	require.Equal(t, []webhook.PendingCommand{{ID: 7, Command: webhook.CommandReschedule, At: at}}, b.signals)
	b.ok(t, http.StatusAccepted, "admin", "POST", path, `{"at":"2020-01-01T00:00:00Z"}`)
	require.Equal(t, testNow(), b.signals[1].At, "a time in the past means now")

	b.refused(t, "admin", "POST", path, "", "at", "is required")
	b.refused(t, "admin", "POST", path, "{}", "at", "is required")
	b.refused(t, "admin", "POST", path, `{"at":"tomorrow"}`, "at", `must be an RFC 3339 time, such as "2026-01-31T09:30:00Z"`)
	b.refused(t, "admin", "POST", path, `{"at":"`+at.Add(31*24*time.Hour).Format(time.RFC3339)+`"}`, "at", "must be at most 30 days ahead")
	b.refused(t, "admin", "POST", path, `{"at":"2020-01-01T00:00:00Z","reason":"x"}`, "reason", "is not a known field")
	require.Len(t, b.signals, 2)
}

func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusOK, "ingest", "GET", "/v1/retry-policies", "")
	require.Len(t, a.json["data"], len(retry.Presets()))
	first := a.json["data"].([]any)[0].(map[string]any)
	require.Equal(t, "default", first["name"])
	require.Equal(t, "10s", first["attempts"].([]any)[1].(map[string]any)["nominal"])

	const preview = "/v1/retry-policies/preview"
	a = b.ok(t, http.StatusOK, "ingest", "POST", preview, `{"retry_policy":{"strategy":"fixed","base":"30s","jitter":"none","max_attempts":2}}`)
	require.Equal(t, []any{
		map[string]any{
			"number": 1., "earliest": "0s", "nominal": "0s", "latest": "0s",
			"latest_after_429": "0s", "latest_after_retry_after": "0s", "expected": true,
		},
		map[string]any{
			"number": 2., "earliest": "30s", "nominal": "30s", "latest": "30s",
			"latest_after_429": "1m", "latest_after_retry_after": "12h", "expected": true,
		},
	}, a.json["attempts"])
	b.refused(t, "ingest", "POST", preview, `{}`, "retry_policy", "is required")
	b.ok(t, http.StatusBadRequest, "ingest", "POST", preview, `{"retry_policy":{"base":"-1s"}}`)
	b.ok(t, http.StatusOK, "ingest", "POST", preview, `{"retry_policy":null}`)
}
