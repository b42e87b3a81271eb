package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const batchPath = eventsPath + "/batch"

func batch(events ...string) string { return `{"events":[` + strings.Join(events, ",") + `]}` }

func TestPostEventBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t)
	events := []string{
		`{"type":"order.paid", "payload": {"b":1.0,"a":[]} ,"external_id":"x"}`,
		`{"payload":"\u00e4\/","type":"order.sent","deliver_at":"2026-02-01T00:00:00Z"}`,
		"{\n\"type\":\"a\",\"payload\":null,\"endpoint_ids\":[\"" + endpoint + "\"]}",
	}
	body := ` { "events" : [ ` + strings.Join(events, " ,\n") + " ] } "
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, body, header("Idempotency-Key", "k"))
	require.Empty(t, a.Header.Get("Idempotent-Replayed"))
	require.Equal(t, []string{"reserve", "accept batch", "accepted 3", "release"}, b.calls)
	answers := a.json["events"].([]any)
	require.Len(t, answers, 3)
	for i, kind := range []string{"order.paid", "order.sent", "a"} {
		view := answers[i].(map[string]any)
		require.Equal(t, kind, view["type"])
		require.Equal(t, b.accepted[i].Event.ID.String(), view["id"])
		require.Len(t, view["deliveries"], 1)
	}
	require.Equal(t, "x", answers[0].(map[string]any)["external_id"])
	require.Equal(t, "2026-02-01T00:00:00.000000Z", answers[1].(map[string]any)["deliver_at"])

	got := b.batches[0]
	require.Equal(t, []any{"acme", "k", sha256.Sum256([]byte(body))}, []any{got.TenantID, got.IdempotencyKey, got.BodySHA256})
	for i, payload := range []string{`{"b":1.0,"a":[]}`, `"\u00e4\/"`, `null`} {
		require.Equal(t, payload, string(got.Events[i].Payload), "unchanged, byte for byte")
		require.Equal(t, sha256.Sum256([]byte(events[i])), got.Events[i].BodySHA256, "the bytes of the event in the body")
	}

	// One event is known, the others are new: only those are dispatched.
	b.calls = nil
	a = b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, batch(`{"type":"a","payload":1}`, events[0], `{"type":"b","payload":1}`))
	require.Empty(t, a.Header.Get("Idempotent-Replayed"))
	require.Equal(t, answers[0], a.json["events"].([]any)[1])
	require.Equal(t, []string{"reserve", "accept batch", "accepted 2", "release"}, b.calls)

	// All events are known: nothing is dispatched.
	b.calls = nil
	a = b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, batch(events[0]))
	require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
	require.Equal(t, []string{"reserve", "accept batch", "release"}, b.calls)
	single := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, events[0])
	require.Equal(t, "true", single.Header.Get("Idempotent-Replayed"), "a single post of the same event is recognised too")
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/events/batch", batch(`{"type":"a","payload":1}`))
}

// A delivery that waits must not keep the whole body in memory.
func TestBatchPayloadsAreCopies(t *testing.T) {
	t.Parallel()
	text := []byte(batch(`{"type":"a","payload":"one"}`))
	got, err := parseBatch(text, testNow(), webhook.DefaultMaxPayload)
	require.NoError(t, err)
	clear(text)
	require.Equal(t, `"one"`, string(got.Events[0].Payload))
}

func TestPostEventBatchWithoutRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broken = &webhook.Error{Code: webhook.CodeUnavailable, Message: "the queue is full"}
	b.ok(t, http.StatusServiceUnavailable, "ingest", "POST", batchPath, batch(`{"type":"a","payload":null}`))
	require.Empty(t, b.calls)
}

func TestPostEventBatchFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ok = `{"type":"a","payload":1}`
	deep := `{"type":"a","payload":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`
	with := func(fields string) string { return `{"type":"a","payload":1,` + fields + `}` }
	for body, want := range map[string][]string{
		``:                     {"body", "is required"},
		`[]`:                   {"body", "must be an object"},
		`{}`:                   {"events", "is required"},
		`{"events":null}`:      {"events", "must be an array"},
		`{"events":{}}`:        {"events", "must be an array"},
		`{"events":[]}`:        {"events", "must hold at least one event"},
		`{"events":[` + ok:     {"events[1]", "a comma or ] is missing (byte 35)"},
		batch(ok) + "x":        {"body", "there is data after the JSON value (byte 37)"},
		batch(ok, ""):          {"events[1]", "there is a trailing comma before ] (byte 36)"},
		batch(ok, "null", "1"): {"events[1]", "must be an object", "events[2]", "must be an object"},
		`{"events":[` + ok + `],"events":[` + ok + `]}`: {"events", "is given more than once"},
		`{"events":[` + ok + `],"key":"k"}`:             {"key", "is not a known field"},
		batch(ok, ok, ok, `{"type":".a","payload":1}`):  {"events[3].type", notAType},
		batch(deep, ok, `{"type":".a","payload":1}`):    {"events[2].type", notAType},
		batch(ok, `{"payload":{"a":[{"b":1,"b":2}]},"id":[{"b":1,"b":2}]}`): {
			"events[1].id", "is not a known field", "events[1].id[0].b", "is given more than once", "events[1].type", "is required",
		},
		batch(with(`"endpoint_ids":["ep_1"]`), with(`"deliver_at":"soon"`)): {
			"events[0].endpoint_ids[0]", "is not an id of the form ep_…", "events[1].deliver_at", notATime,
		},
		batch(ok, with(`"external_id":"x"`), ok, with(`"external_id":"\u0078"`), with(`"external_id":"x"`)): {
			"events[3].external_id", "is the same as that of events[1] too", "events[4].external_id", "is the same as that of events[1] too",
		},
		batch(slices.Repeat([]string{ok}, 101)...): {"events", "has more than 100 entries"},
		batch(slices.Repeat([]string{"7"}, 200)...): slices.Concat(func() (want [][]string) {
			for i := range maxFieldErrors {
				want = append(want, []string{fmt.Sprintf("events[%d]", i), "must be an object"})
			}
			return want
		}()...),
	} {
		b.refused(t, "ingest", "POST", batchPath, body, want...)
	}
	require.Empty(t, b.calls, "nothing reaches the store")
	b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, batch(slices.Repeat([]string{ok}, 100)...))
	b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, batch(with(`"external_id":null`), with(`"external_id":null`)))
	a := b.ok(t, http.StatusBadRequest, "ingest", "POST", batchPath, batch(ok), header("Idempotency-Key", ""))
	require.Equal(t, "Idempotency-Key", fieldsOf(t, a)[0])
}

// An error of the store names the field, for every status.
func TestPostEventBatchRefusedByTheStore(t *testing.T) {
	t.Parallel()
	for code, status := range map[webhook.Code]int{
		webhook.CodeInvalid: 400, webhook.CodeConflict: 409, webhook.CodeTooLarge: 413, webhook.CodeMismatch: 422,
	} {
		b := setup(t)
		b.broken = &webhook.Error{Code: code, Fields: []webhook.FieldError{{Field: "events[3].external_id", Message: "is bad"}}}
		a := b.ok(t, status, "ingest", "POST", batchPath, batch(`{"type":"a","payload":1}`))
		require.Equal(t, []string{"events[3].external_id", "is bad"}, fieldsOf(t, a))
		require.Equal(t, "events[3].external_id: is bad", a.json["detail"])
		require.Equal(t, []string{"reserve", "accept batch", "release"}, b.calls)
	}
}

func TestPostEventBatchSizes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sized := func(n int) string { return `{"type":"a","payload":"` + strings.Repeat("x", n-2) + `"}` }
	largest := sized(webhook.DefaultMaxPayload)
	full := batch(slices.Repeat([]string{largest}, 31)...)
	full = full[:len(full)-1] + strings.Repeat(" ", minBatchBytes-len(full)) + "}"
	require.Len(t, full, minBatchBytes)
	over := batch(`{"type":"a","payload":1}`, sized(webhook.DefaultMaxPayload+1), largest, sized(webhook.DefaultMaxPayload+1))
	for _, option := range []func(*http.Request){func(*http.Request) {}, unsized} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", batchPath, full, option)
		a := b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", batchPath, full+" ", option)
		require.Contains(t, []any{"body: is larger than 8388608 bytes", "body: has 8388609 bytes; the limit is 8388608"}, a.json["detail"])
		a = b.ok(t, http.StatusRequestEntityTooLarge, "ingest", "POST", batchPath, over, option)
		const refusal = "has 262145 bytes; the limit is 262144"
		require.Equal(t, []string{"events[1].payload", refusal, "events[3].payload", refusal}, fieldsOf(t, a))
	}
	for _, missing := range []int64{1, (webhook.DefaultMaxPayload + roomAroundPayload), minBatchBytes - 100} {
		announce := func(r *http.Request) { r.ContentLength += missing }
		a := b.ok(t, http.StatusBadRequest, "ingest", "POST", batchPath, batch(`{"type":"a","payload":1}`), announce)
		require.Equal(t, "body: could not be read to its end", a.json["detail"])
	}
}

// FuzzBatchBody compares each event of a batch with the same bytes posted alone.
func FuzzBatchBody(f *testing.F) {
	for _, seed := range []string{
		`{"type":"order.paid","payload":{"order":17},"external_id":"x"}`, ` {"type":"a","payload":[1,-2.5e3,"\ud83d\ude00",null,true]} `,
		`{"type":"a","payload":{"a":1,"a":2}}`, `{"type":"a","payload":01}`, `{"type":"a","payload":1},{"type":"b","payload":2}`, `{}],"events":[{}`,
		`{"type":"a","payload":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
		`{"type":"a","payload":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		alone, errAlone := parseEvent(text, testNow(), webhook.DefaultMaxPayload)
		together, errTogether := parseBatch(slices.Concat([]byte(`{"events":[`), text, []byte(`]}`)), testNow(), webhook.DefaultMaxPayload)
		if errTogether == nil && len(together.Events) != 1 {
			return
		}
		if errAlone != nil {
			require.Equal(t, webhook.CodeOf(errAlone), webhook.CodeOf(errTogether), "%q: %v", text, errTogether)
			require.Error(t, errTogether, "%q: %v", text, errAlone)
			return
		}
		require.NoError(t, errTogether, "%q", text)
		alone.BodySHA256 = sha256.Sum256([]byte(strings.Trim(string(text), " \t\r\n")))
		require.Equal(t, []webhook.NewEvent{alone}, together.Events)
	})
}
