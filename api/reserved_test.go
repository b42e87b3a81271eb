package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Events with a reserved type cannot be posted; they are read like any other event.
func TestOperationalTypesAreReserved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const refusal = "must not begin with everpost., in any case: these types are reserved"
	for _, key := range []string{"ingest", "operator"} {
		for _, eventType := range []string{"everpost.endpoint.disabled", "everpost.x", "Everpost.endpoint.disabled", "EVERPOST.x"} {
			b.refused(t, key, "POST", eventsPath, `{"type":"`+eventType+`","payload":1}`, "type", refusal)
			b.refused(t, key, "POST", batchPath, batch(`{"type":"a","payload":1}`, `{"type":"`+eventType+`","payload":1}`), "events[1].type", refusal)
		}
	}
	require.Empty(t, b.events)
	for _, eventType := range []string{"everpost", "everposted.x", "x.everpost.y", "userCreated", "invoice/paid", "order-paid", "com:acme"} {
		b.ok(t, http.StatusAccepted, "ingest", "POST", eventsPath, `{"type":"`+eventType+`","payload":1}`)
	}
	b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"?type=everpost.endpoint.disabled", "")
	b.ok(t, http.StatusOK, "ingest", "GET", eventsPath+"?type=everpost.*", "")
	b.refused(t, "ingest", "GET", eventsPath+"?type=Everpost.*", "", "type", notAFilter)
	b.refused(t, "admin", "POST", endpointsPath, `{"url":"https://example.com","event_types":["Everpost.endpoint.*"]}`, "event_types[0]", notAFilter)
}
