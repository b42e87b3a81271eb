package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// R10: what is open and past its time is handed out, once in a while.
func TestOverdue(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	late, soon := time.Now().Add(-deliveries.OverdueAfter-time.Minute), time.Now().Add(-deliveries.OverdueAfter+time.Minute)
	want := map[webhook.DeliveryID]string{}
	for name, test := range map[string]struct {
		state       webhook.State
		due, giveUp time.Time
		claimed     time.Duration // from now; 0: not claimed
		overdue     bool
	}{
		"retrying, late":                   {webhook.StateRetrying, late, time.Now().Add(time.Hour), 0, true},
		"retrying, not late enough":        {webhook.StateRetrying, soon, time.Now().Add(time.Hour), 0, false},
		"retrying, to come":                {webhook.StateRetrying, time.Now().Add(time.Hour), time.Now().Add(2 * time.Hour), 0, false},
		"pending, late":                    {webhook.StatePending, late, time.Now().Add(time.Hour), 0, true},
		"pending, its sender is gone":      {webhook.StatePending, time.Time{}, time.Now().Add(time.Hour), -deliveries.OverdueAfter - time.Minute, true},
		"pending, being sent":              {webhook.StatePending, time.Time{}, time.Now().Add(time.Hour), time.Minute, false},
		"held":                             {webhook.StateHeld, time.Time{}, time.Now().Add(time.Hour), -time.Hour, false},
		"held, past its give-up time":      {webhook.StateHeld, time.Time{}, late, 0, true},
		"delivered":                        {webhook.StateDelivered, late, late, 0, false},
		"dead letter":                      {webhook.StateDeadLettered, late, late, 0, false},
		"cancelled":                        {webhook.StateCancelled, late, late, 0, false},
		"discarded":                        {webhook.StateDiscarded, late, late, 0, false},
		"pending, nothing is known but it": {webhook.StatePending, time.Time{}, late, 0, true},
	} {
		start := b.AcceptOne(t)
		start.GiveUpAt = test.giveUp
		step := storetest.StepOf(start, 1, test.state)
		step.DueAt = test.due
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err, name)
		if test.claimed != 0 {
			_, err := b.Pool().Exec(t.Context(), `update deliveries set owner = gen_random_uuid(), owner_until = $2 where id = $1`,
				start.DeliveryID, time.Now().Add(test.claimed))
			require.NoError(t, err)
		}
		if test.overdue {
			want[start.DeliveryID] = name
		}
	}
	found := map[webhook.DeliveryID]string{}
	var from webhook.Cursor
	for range want {
		page, next, err := b.Overdue(t.Context(), from, time.Hour, 1)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.True(t, next.After(from))
		require.Equal(t, page[0].DeliveryID, next.ID)
		from = next
		found[page[0].DeliveryID] = want[page[0].DeliveryID]
		require.NotEmpty(t, page[0].WorkflowID)
		require.Equal(t, 1, page[0].Seq, "all that its workflow has to know")
	}
	require.Equal(t, want, found)
	page, end, err := b.Overdue(t.Context(), from, 0, 10)
	require.NoError(t, err)
	require.Empty(t, page, "a page begins where the one before has ended")
	require.Equal(t, from, end)
	page, _, err = b.Overdue(t.Context(), webhook.Cursor{}, time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, page, "each once in an hour")
	page, _, err = b.Overdue(t.Context(), webhook.Cursor{}, 0, 10)
	require.NoError(t, err)
	require.Len(t, page, len(want), "and again after that")
}

// A dead letter whose retention has passed is returned if it was not discarded.
func TestExpired(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	const keep = 24 * time.Hour
	var expired webhook.DeliveryID
	for _, test := range []struct {
		state webhook.State
		age   time.Duration
	}{
		{webhook.StateDeadLettered, keep + deliveries.ExpiredAfter + time.Minute},
		{webhook.StateDeadLettered, keep + deliveries.ExpiredAfter - time.Minute},
		{webhook.StateDelivered, keep + deliveries.ExpiredAfter + time.Minute},
		{webhook.StateRetrying, keep + deliveries.ExpiredAfter + time.Minute},
	} {
		start := b.AcceptOne(t)
		_, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, test.state))
		require.NoError(t, err)
		_, err = b.Pool().Exec(t.Context(), `update deliveries set completed_at = $2 where id = $1`, start.DeliveryID, time.Now().Add(-test.age))
		require.NoError(t, err)
		if expired.IsZero() {
			expired = start.DeliveryID
		}
	}
	page, from, err := b.Expired(t.Context(), keep, webhook.Cursor{}, time.Hour, 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Equal(t, expired, page[0].DeliveryID)
	page, _, err = b.Expired(t.Context(), keep, webhook.Cursor{}, time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, page)
	page, _, err = b.Expired(t.Context(), keep, from, 0, 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

// A start that does not help is repeated less and less often.
func TestRelayIsPatient(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AcceptOne(t)
	for _, want := range []time.Duration{8, 16, 32, 64, 128, 256, 512, 512} {
		_, err := b.Pool().Exec(t.Context(), `update outbox set relay_at = now()`)
		require.NoError(t, err)
		starts, err := b.TakeStarts(t.Context(), "test", 10)
		require.NoError(t, err)
		require.Len(t, starts, 1)
		var until float64
		require.NoError(t, b.Pool().QueryRow(t.Context(), `select extract(epoch from relay_at - now())::float8 from outbox`).Scan(&until))
		require.InDelta(t, float64(want), until, 5)
	}
}
