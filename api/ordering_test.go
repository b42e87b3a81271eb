package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestOrderingKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.endpoint(t)
	const body = `{"type":"order.paid","payload":1,"external_id":"x","ordering_key":"Müller 17"}`
	a := b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body)
	require.Equal(t, "Müller 17", b.events[0].OrderingKey)
	require.Equal(t, "Müller 17", a.json["ordering_key"])
	require.Equal(t, a.text, b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, body).text)
	b.ok(t, http.StatusUnprocessableEntity, "ingest", "POST", eventsPath, strings.Replace(body, "17", "18", 1))
	got := b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"/"+a.json["id"].(string), "")
	require.Equal(t, "Müller 17", got.json["ordering_key"])
	for _, without := range []string{`,"ordering_key":null`, ``, `,"ordering_key":null,"deliver_at":"2026-02-20T00:00:00Z"`} {
		a = b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1`+without+`}`)
		require.NotContains(t, a.json, "ordering_key")
	}
	b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,"ordering_key":"a","deliver_at":"2001-01-01T00:00:00Z"}`)
}

func TestOrderingKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for field, want := range map[string]string{
		`"ordering_key":""`:                                 notPrintable(webhook.MaxOrderingKey),
		`"ordering_key":"a\nb"`:                             notPrintable(webhook.MaxOrderingKey),
		`"ordering_key":"` + strings.Repeat("x", 129) + `"`: notPrintable(webhook.MaxOrderingKey),
		`"ordering_key":17`:                                 "must be a string",
	} {
		b.refused(t, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,`+field+`}`, "ordering_key", want)
	}
	const later = `"deliver_at":"2026-02-20T00:00:00Z"`
	const both = "cannot be given: an event has either a deliver_at or an ordering_key"
	b.refused(t, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,"ordering_key":"a",`+later+`}`, "deliver_at", both)
	b.refused(t, "ingest", "POST", eventsPath, `{"type":"order.paid","payload":1,`+later+`,"ordering_key":"a"}`, "ordering_key", both)
	b.refused(t, "ingest", "POST", eventsPath+"/batch", `{"events":[{"type":"order.paid","payload":1,`+later+`,"ordering_key":"a"}]}`,
		"events[0].ordering_key", both)
}

func TestOrderingOfEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.ok(t, http.StatusCreated, "admin", "POST", endpointsPath, `{"url":"https://example.com","ordering":{"by":"number"}}`)
	require.Equal(t, map[string]any{"by": "number"}, a.json["ordering"])
	require.Equal(t, webhook.OrderingNumber, b.endpoints[0].Ordering.By)
	path := endpointsPath + "/" + a.json["id"].(string)
	a = b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"ordering":{"by":"none"}}`)
	require.Equal(t, map[string]any{"by": "none"}, a.json["ordering"])
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"ordering":{"by":"number"}}`)
	b.ok(t, http.StatusOK, "admin", "PATCH", path, `{"ordering":null}`)
	require.Equal(t, webhook.OrderingNone, b.endpoints[0].Ordering.By)
	for value, want := range map[string][2]string{
		`{"by":"key"}`:            {"ordering.by", `must be "none" or "number"`},
		`{"by":1}`:                {"ordering.by", "must be a string"},
		`{}`:                      {"ordering.by", "is required"},
		`"number"`:                {"ordering", "must be an object"},
		`{"by":"none","other":1}`: {"ordering.other", "is not a known field"},
	} {
		b.refused(t, "admin", "PATCH", path, `{"ordering":`+value+`}`, want[0], want[1])
	}
}
