package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// batch is what a batch is answered with.
type batch struct {
	Events []event `json:"events"`
}

// refusal is a problem that names fields.
type refusal struct {
	Errors []struct {
		Field string `json:"field"`
	} `json:"errors"`
}

func batchBody(events ...string) string { return `{"events": [` + strings.Join(events, " ,\n") + `]}` }

// TestBatch posts many events at once: each arrives as if it had been posted alone, one
// that is known only once, and the whole batch again changes nothing.
func TestBatch(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", fieldsOf{"event_types": []string{"order.*"}})
	known := b.post("order.paid", oddPayload, "external_id", `"order-0"`)
	events := []string{
		fmt.Sprintf(`{"type":"order.paid","payload":%s,"external_id":"order-0"}`, oddPayload), // what post sent, to the byte
		`{"type":"no.match","payload":1}`,
	}
	payloads := map[string]string{known.ID: oddPayload}
	for n := range 30 {
		events = append(events, fmt.Sprintf(`{"payload" : %s, "type":"order.n%d","external_id":"order-%d"}`, odd(n), n, n+1))
	}
	body, key := batchBody(events...), []string{"Idempotency-Key", "batch-1"}

	var first, again batch
	got := b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", body, &first, key...)
	require.Empty(t, got.header.Values("Idempotent-Replayed"))
	require.Len(t, first.Events, len(events))
	require.Equal(t, known.ID, first.Events[0].ID)
	require.NotNil(t, first.Events[1].Reason)
	require.Equal(t, "no_matching_endpoint", *first.Events[1].Reason)
	for n, e := range first.Events[2:] {
		require.Equal(t, fmt.Sprintf("order.n%d", n), e.Type)
		require.Equal(t, 1, e.Matched)
		payloads[e.ID] = odd(n)
	}
	for _, e := range slices.Concat(first.Events[:1], first.Events[2:]) {
		d := b.waitState(e.Deliveries[0].ID, "delivered")
		b.requireAtOnce(d.CreatedAt.Time, d.CompletedAt.Sub(d.CreatedAt.Time), "by its own start, not by the relay")
	}

	got = b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", body, &again, key...)
	require.Equal(t, []string{"true"}, got.header.Values("Idempotent-Replayed"))
	require.Equal(t, first, again)
	b.ask(http.StatusUnprocessableEntity, http.MethodPost, "/events/batch", body+" ", nil, key...)
	require.Equal(t, len(payloads), r.Count(), "each once")
	for _, request := range r.Requests() {
		require.Equal(t, payloads[request.WebhookID()], string(request.Body), "byte for byte")
	}
}

// odd is JSON that must not be re-serialised, another for each n.
func odd(n int) string { return fmt.Sprintf(`{ "n":%d.0, "odd" :%s}`, n, oddPayload) }

// TestBatchIsAllOrNothing: one bad event, whatever is bad about it and wherever it is
// found out, and none of the others is stored or sent.
func TestBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	known := b.post("order.paid", `{"n":1}`, "external_id", `"known"`)
	const good = `{"type":"order.paid","payload":2,"external_id":"good"}`
	for bad, want := range map[string]struct {
		status int
		field  string
	}{
		`{"type":"OR DER","payload":1}`: {400, "events[2].type"},
		`{"type":"a"}`:                  {400, "events[2].payload"},
		`7`:                             {400, "events[2]"},
		good:                            {400, "events[2].external_id"},
		`{"type":"a","payload":1,"endpoint_ids":["ep_06f4q2m0hhf5dd6cs7m9k2q8xw"]}`: {400, "events[2].endpoint_ids"},
		`{"type":"order.paid","payload":{"n":9},"external_id":"known"}`:             {422, "events[2].external_id"},
		`{"type":"a","payload":"` + strings.Repeat("x", 256<<10) + `"}`:             {413, "events[2].payload"},
	} {
		var p refusal
		b.ask(want.status, http.MethodPost, "/events/batch", batchBody(good, `{"type":"order.paid","payload":3}`, bad), &p, "Idempotency-Key", "k")
		require.Len(t, p.Errors, 1)
		require.Equal(t, want.field, p.Errors[0].Field)
	}
	var all page[event]
	b.ask(http.StatusOK, http.MethodGet, "/events", nil, &all)
	require.Len(t, all.Data, 1)
	require.Equal(t, known.ID, all.Data[0].ID)

	var made batch // neither the ids nor the key of what was refused are taken
	got := b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(good), &made, "Idempotency-Key", "k")
	require.Empty(t, got.header.Values("Idempotent-Replayed"))
	b.waitState(made.Events[0].Deliveries[0].ID, "delivered")
	b.waitState(known.Deliveries[0].ID, "delivered")
	require.Equal(t, 2, r.Count())
}

// TestEveryEventOfABatchIsFound: a workflow that a hundred events share is found by each.
func TestEveryEventOfABatchIsFound(t *testing.T) {
	t.Parallel()
	needsStandalone(t, itsOwn)
	b, r := setup(t), newReceiver(t)
	b.endpoint(r, "/hook", nil)
	events := make([]string, 100)
	for n := range events {
		events[n] = fmt.Sprintf(`{"type":"order.paid","payload":%d}`, n)
	}
	var made batch
	b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(events...), &made)
	engine := b.in.temporal(t)
	for _, n := range []int{0, 59, 60, 98, 99} {
		e := made.Events[n]
		eventually(contextFor(t, patience), t, func() string {
			// One that had no other to share a workflow with has its own.
			if len(workflowsBy(t.Context(), t, engine, fmt.Sprintf("EventId = '%[1]s' or EventIds = '%[1]s'", e.ID))) == 0 {
				return fmt.Sprintf("no workflow is found by event %d", n)
			}
			return ""
		})
	}
}
