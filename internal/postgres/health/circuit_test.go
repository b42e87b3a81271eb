package health_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Closing a circuit notifies workers, is in the audit log, and wakes the oldest waiting delivery.
func TestCloseCircuit(t *testing.T) {
	t.Parallel()
	const soon = `now() + interval '10 minutes'`
	b := storetest.Setup(t)
	id := b.Subscriber.ID
	none, err := b.CircuitClosings(t.Context(), []webhook.EndpointID{id})
	require.NoError(t, err)
	require.Empty(t, none)
	closed, err := b.CloseCircuit(t.Context(), storetest.TestActor(), "acme", id)
	require.NoError(t, err)
	require.Equal(t, id, closed.Endpoint.ID)
	require.Zero(t, closed.Command)
	known, err := b.CircuitClosings(t.Context(), []webhook.EndpointID{webhook.NewEndpointID(), id})
	require.NoError(t, err)
	require.Len(t, known, 1)
	require.True(t, known[id].Equal(closed.At))
	b.Exec(t, `update circuit_closings set closed_at = closed_at - interval '11 seconds'`)
	known, err = b.CircuitClosings(t.Context(), []webhook.EndpointID{id})
	require.NoError(t, err)
	require.Empty(t, known, "what has opened since is another failure")

	for name, c := range map[string]struct {
		change string // of the oldest
		woken  bool
	}{
		"put off before its first attempt": {`state = 0, reason = 'circuit_open', due_at = ` + soon, true},
		"put off":                          {`state = 1, reason = 'circuit_open', due_at = ` + soon, true},
		"waits for its retry":              {`state = 1, reason = '', due_at = ` + soon, true},
		"held as a backlog":                {`state = 2, reason = 'backlog', due_at = null`, true},
		"waits for its deliver_at":         {`state = 0, reason = '', due_at = ` + soon, false},
		"being started":                    {`state = 0, reason = '', due_at = null`, false},
		"being sent":                       {`state = 1, due_at = ` + soon + `, owner = gen_random_uuid(), owner_until = ` + soon, false},
		"to be cancelled":                  {`state = 1, due_at = ` + soon + `, command = 1`, false},
		"ended":                            {`state = 4, due_at = ` + soon, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			starts := []webhook.Start{b.AcceptOne(t), b.AcceptOne(t)}
			slices.SortFunc(starts, func(a, b webhook.Start) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
			for _, start := range starts {
				step := storetest.StepOf(start, 1, webhook.StateRetrying)
				step.DueAt = time.Now().Add(time.Hour)
				_, err := b.RecordStep(t.Context(), step)
				require.NoError(t, err)
			}
			b.Exec(t, `update deliveries set `+c.change+` where id = $1`, starts[0].DeliveryID)
			closed, err := b.CloseCircuit(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID)
			require.NoError(t, err)
			want := starts[1].DeliveryID
			if c.woken {
				want = starts[0].DeliveryID
			}
			require.Equal(t, want, closed.Delivery.DeliveryID)
			require.Equal(t, webhook.PendingCommand{ID: 1, Command: webhook.CommandRetry}, closed.Command)
			status, err := b.DeliveryStatus(t.Context(), closed.Delivery.Ref)
			require.NoError(t, err)
			require.Equal(t, closed.Command, status.Command, "it arrives, whatever becomes of the signal")
			entries, err := b.ListAudit(t.Context(), webhook.AuditFilter{}, webhook.Page{Limit: 1})
			require.NoError(t, err)
			require.Equal(t, "endpoint.close_circuit", entries[0].Action)
			require.JSONEq(t, `{"delivery_id":"`+want.String()+`"}`, string(entries[0].Detail))
		})
	}

	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", id, "")
	require.NoError(t, err)
	_, err = b.RecordStep(t.Context(), storetest.StepOf(b.AcceptOne(t), 1, webhook.StateRetrying))
	require.NoError(t, err)
	b.Exec(t, `update deliveries set due_at = now()`)
	closed, err = b.CloseCircuit(t.Context(), storetest.TestActor(), "acme", id)
	require.NoError(t, err)
	require.Zero(t, closed.Command, "it would be held")
	_, err = b.CloseCircuit(t.Context(), storetest.TestActor(), "other", id)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
}
