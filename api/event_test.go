package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

const eventsPath = "/v1/tenants/acme/events"

func TestPostEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t)
	const body = `{"type":"order.paid", "payload": {"b":1.0,"a":[]} ,"external_id":"order-17-paid"}`
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body)
	event, err := webhook.ParseEventID(a.json["id"].(string))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(`{"id":"%[1]s","external_id":"order-17-paid","type":"order.paid","created_at":"2026-01-31T09:30:00.123456Z",`+
		`"deliver_at":null,"endpoint_ids":["%[3]s"],"payload_size":16,"payload_removed":null,"reason":null,"matched":1,`+
		`"deliveries":[{"id":"%[2]s","endpoint_id":"%[3]s","state":"pending"}]}`, event, webhook.DeliveryIDOf(event, b.endpoints[0].ID), endpoint),
		strings.TrimSpace(a.text))
	require.Empty(t, a.Header.Get("Idempotent-Replayed"))
	require.Equal(t, []string{"reserve", "accept", "accepted", "release"}, b.calls)
	require.Equal(t, webhook.NewEvent{
		TenantID: "acme", Type: "order.paid", Payload: []byte(`{"b":1.0,"a":[]}`), ExternalID: "order-17-paid", BodySHA256: sha256.Sum256([]byte(body)),
	}, b.events[0])

	payload := b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"/"+event.String()+"/payload", "")
	require.Equal(t, `{"b":1.0,"a":[]}`, payload.text, "unchanged, byte for byte")

	// A repeated request gets the first response and dispatches nothing, whatever the delivery's state.
	b.calls = nil
	d := &b.deliveries[0]
	d.State, d.Attempts, d.CompletedAt = webhook.StateDelivered, 1, testNow()
	again := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	require.Equal(t, a.text, again.text)
	require.Equal(t, []string{"reserve", "accept", "release"}, b.calls)
	b.ok(t, http.StatusUnprocessableEntity, "ingest", "POST", eventsPath, body+" ")

	got := b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"/"+event.String(), "")
	require.Equal(t, strings.Replace(a.text, `"pending"`, `"delivered","summary":"Delivered at 09:30:00 UTC, 0 s ago, with the first attempt."`, 1), got.text)
	list := b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"?external_id=order-17-paid&type=order.paid&since=2026-01-01T00:00:00Z", "")
	require.Len(t, list.json["data"], 1)
	b.ok(t, http.StatusNotFound, "operator", "POST", "/v1/tenants/nobody/events", body)
}

func TestPostEventThatMatchesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"a","payload":null}`)
	require.InDelta(t, 0, a.json["matched"], 0)
	require.Equal(t, "no_matching_endpoint", a.json["reason"])
	require.Empty(t, a.json["deliveries"])
	require.Contains(t, a.text, `"deliveries":[]`)
}

// A full queue refuses an event before anything is stored.
func TestPostEventWithoutRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broken = &webhook.Error{Code: webhook.CodeUnavailable, Message: "the queue is full", RetryAfter: 2 * time.Second}
	a := b.ok(t, http.StatusServiceUnavailable, "ingest", "POST", eventsPath, `{"type":"a","payload":null}`)
	require.Equal(t, "2", a.Header.Get("Retry-After"))
	require.Empty(t, b.calls)
}

func TestPostEventFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.endpoint(t)
	post := func(fields string) string { return `{"type":"a","payload":1,` + fields + `}` }

	b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, post(`"external_id":null,"deliver_at":null,"endpoint_ids":null`))
	require.Nil(t, b.events[0].EndpointIDs)
	longest := strings.Repeat("ä", 255)
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath,
		post(`"external_id":"`+longest+`","endpoint_ids":["`+id+`"],"deliver_at":"2026-03-02T10:30:00.1234567+01:00"`))
	require.Equal(t, "2026-03-02T09:30:00.123456Z", a.json["deliver_at"], "30 days ahead, to the microsecond")
	require.Equal(t, []any{id}, a.json["endpoint_ids"])
	a = b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, post(`"deliver_at":"2020-01-01T00:00:00Z"`))
	require.Nil(t, a.json["deliver_at"], "a time in the past means immediately")
	require.True(t, b.events[2].DeliverAt.IsZero())

	for fields, want := range map[string][]string{
		`"deliver_at":"2026-03-02T09:30:00.123457Z"`:       {"deliver_at", "must be at most 30 days ahead"},
		`"deliver_at":"2026-02-02T09:30:00,1Z"`:            {"deliver_at", notATime},
		`"deliver_at":"2026-02-02 09:30:00Z"`:              {"deliver_at", notATime},
		`"deliver_at":1769850600`:                          {"deliver_at", "must be a string"},
		`"external_id":"` + strings.Repeat("x", 256) + `"`: {"external_id", notPrintable(255)},
		`"external_id":"a\u2028b"`:                         {"external_id", notPrintable(255)},
		`"endpoint_ids":["` + id + `","` + id + `"]`:       {"endpoint_ids[1]", "is listed more than once"},
		`"endpoint_ids":{}`:                                {"endpoint_ids", "must be an array"},
		`"endpoint_ids":[]`: {
			"endpoint_ids", "must name at least one endpoint; omit it to send to all endpoints with a matching filter",
		},
		`"id":"x"`: {"id", "is not a known field"},
	} {
		b.refused(t, "ingest", "POST", eventsPath, post(fields), want...)
	}

	var ids []string
	for range webhook.MaxTargetEndpoints {
		ids = append(ids, `"`+webhook.NewEndpointID().String()+`"`)
	}
	b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, post(`"endpoint_ids":[`+strings.Join(ids, ",")+`]`))
	b.refused(t, "ingest", "POST", eventsPath, post(`"endpoint_ids":[`+strings.Join(ids, ",")+`,"x","y"]`), "endpoint_ids", "has more than 1000 entries")
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const body = `{"type":"a","payload":1}`
	for _, key := range []string{"k", "a b~", strings.Repeat("x", 255)} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body, header("Idempotency-Key", key))
		require.Equal(t, key, b.events[len(b.events)-1].IdempotencyKey)
	}
	for _, keys := range [][]string{{""}, {strings.Repeat("x", 256)}, {"ä"}, {"a\tb"}, {"a", "a"}} {
		a := b.ok(t, http.StatusBadRequest, "ingest", "POST", eventsPath, body, header("Idempotency-Key", keys...))
		require.Equal(t, []string{"Idempotency-Key", "must be given once and be 1 to 255 printable ASCII characters"}, fieldsOf(t, a))
	}
}

func BenchmarkPostEvent(b *testing.B) {
	m := newMemory(testNow)
	m.tenants["acme"] = webhook.Tenant{ID: "acme"}
	s := New(Config{Tenants: m, Keys: m, Endpoints: m, EndpointSecrets: m, Events: instant{}, Deliveries: m, Starter: m, URLs: m, Limits: m, Now: testNow})
	text, sum := NewKey(webhook.NewKeyID())
	id, _, err := ParseKey(text)
	if err != nil {
		b.Fatal(err)
	}
	m.keys = append(m.keys, webhook.Key{ID: id, SHA256: sum, TenantID: "acme", Scope: webhook.ScopeIngest})
	body := `{"type":"order.paid","external_id":"order-17-paid","payload":{"text":"` + strings.Repeat("some text ", 100) + `"}}`
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequest(http.MethodPost, eventsPath, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+text)
		w := &discard{header: http.Header{}}
		s.Handler().ServeHTTP(w, r)
		if w.status != http.StatusAccepted {
			b.Fatal(w.status)
		}
		m.calls = m.calls[:0]
	}
}
