package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/receivertest"
)

// TestHeadersAndTags posts events with headers and tags, alone and in a batch: receivers get the headers at once, in a retry and in a replay, but not
// in place of the endpoint's own; lists find the events by their tags; an erasure removes both.
func TestHeadersAndTags(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"headers": fieldsOf{"X-Tenant": "the endpoint's"}})
	r.Script("/hook", receivertest.Step{Status: 503})
	const fields = `{"type":"order.paid","payload":{"order":17},"external_id":"order-17",` +
		`"headers":{"X-Region":"eu-west","x-tenant":"the event's"},"tags":["order:17","eu-west"]}`
	var posted event
	b.ask(http.StatusAccepted, http.MethodPost, "/events", fields, &posted)
	require.Equal(t, []string{"order:17", "eu-west"}, posted.Tags)
	require.Len(t, posted.Deliveries, 1)
	id := posted.Deliveries[0].ID
	b.waitState(id, "delivered")
	b.command(http.StatusAccepted, id, "replay", nil)
	eventually(contextFor(t, patience), t, func() string {
		if d := b.delivery(id); d.Run == 2 && d.State == "delivered" {
			return ""
		}
		return "the replay has not delivered it"
	})
	all := r.Requests()
	require.Len(t, all, 3)
	for _, request := range all {
		require.Equal(t, []string{"eu-west"}, request.Header.Values("X-Region"))
		require.Equal(t, []string{"the endpoint's"}, request.Header.Values("X-Tenant"))
	}
	for _, a := range b.attempts(id) {
		require.Equal(t, "eu-west", a.RequestHeaders["X-Region"])
		require.Equal(t, "[redacted]", a.RequestHeaders["X-Tenant"])
	}

	again := b.ask(http.StatusAccepted, http.MethodPost, "/events", fields, nil)
	require.Equal(t, []string{"true"}, again.header.Values("Idempotent-Replayed"))
	b.ask(http.StatusUnprocessableEntity, http.MethodPost, "/events", `{"type":"order.paid","payload":{"order":17},"external_id":"order-17"}`, nil)

	var other batch
	b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(
		`{"type":"order.paid","payload":1,"tags":["eu-west"],"headers":{"X-Region":"eu-west"}}`, `{"type":"order.paid","payload":2}`), &other)
	for _, e := range other.Events {
		b.waitState(e.Deliveries[0].ID, "delivered")
	}
	for tag, want := range map[string][]string{"eu-west": {other.Events[0].ID, posted.ID}, "order:17": {posted.ID}, "eu": {}} {
		var found page[client.ListedEvent]
		b.ask(http.StatusOK, http.MethodGet, "/events?tag="+tag, nil, &found)
		ids := []string{}
		for _, e := range found.Data {
			ids = append(ids, e.ID)
		}
		require.Equal(t, want, ids, tag)
	}

	var shown event
	b.ask(http.StatusOK, http.MethodGet, "/events/"+posted.ID, nil, &shown)
	require.Equal(t, map[string]string{"X-Region": "eu-west", "x-tenant": "the event's"}, shown.Headers)
	eventually(contextFor(t, patience), t, func() string { // for a moment a process may have the payload in memory
		got, err := b.in.client().call(t.Context(), http.MethodDelete, b.path("/events/"+posted.ID+"/payload"), nil)
		if err != nil || got.status != http.StatusNoContent {
			return "it is not erased: " + string(got.body)
		}
		return ""
	})
	got := b.ask(http.StatusOK, http.MethodGet, "/events/"+posted.ID, nil, nil)
	require.NotContains(t, string(got.body), "eu-west")
	require.Empty(t, b.attempts(id)[0].RequestHeaders)
	var left page[client.ListedEvent]
	b.ask(http.StatusOK, http.MethodGet, "/events?tag=order:17", nil, &left)
	require.Empty(t, left.Data)
}
