package e2e_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/receivertest"
)

// TestNumbers posts events with ordering keys, alone and in a batch: the receiver gets the number of each in its line, the same in a retry and in a
// replay, and the event says it.
func TestNumbers(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"ordering": fieldsOf{"by": "number"}})
	r.Script("/hook", receivertest.Step{Status: 503})
	var first client.AcceptedEvent
	b.ask(http.StatusAccepted, http.MethodPost, "/events", `{"type":"order.paid","payload":{"order":17},"ordering_key":"order 17"}`, &first)
	id := first.Deliveries[0].ID
	require.Equal(t, int64(1), first.Deliveries[0].Sequence)
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
	for i, request := range all {
		require.Equal(t, []string{"order 17"}, request.Header.Values("everpost-ordering-key"))
		require.Equal(t, []string{"1"}, request.Header.Values("everpost-sequence"))
		require.Equal(t, []string{strconv.FormatInt(first.Deliveries[0].Line, 10)}, request.Header.Values("everpost-line"))
		require.Equal(t, i == 2, request.Header.Get("everpost-replay") == "2")
	}

	var others client.AcceptedBatch
	b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(
		`{"type":"order.paid","payload":1,"ordering_key":"order 17"}`, `{"type":"order.paid","payload":2,"ordering_key":"order 18"}`,
		`{"type":"order.paid","payload":3,"ordering_key":"order 17"}`, `{"type":"order.paid","payload":4}`), &others)
	for i, want := range []int64{2, 1, 3, 1} {
		require.Equal(t, want, others.Events[i].Deliveries[0].Sequence)
		b.waitState(others.Events[i].Deliveries[0].ID, "delivered")
	}
	var shown client.AcceptedEvent
	b.ask(http.StatusOK, http.MethodGet, "/events/"+others.Events[2].ID, nil, &shown)
	require.Equal(t, int64(3), shown.Deliveries[0].Sequence)
	require.Equal(t, "order 17", shown.OrderingKey)
	b.ask(http.StatusBadRequest, http.MethodPost, "/events",
		`{"type":"order.paid","payload":1,"ordering_key":"a","deliver_at":"`+at(time.Now().Add(time.Hour))+`"}`, nil)
}
