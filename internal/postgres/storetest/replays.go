package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// StartReplay creates a replay.
func (b *Bundle) StartReplay(t *testing.T, r webhook.Replay) webhook.Replay {
	t.Helper()
	r.TenantID = "acme"
	if r.Source == 0 {
		r.Source = webhook.ReplayDeadLetters
	}
	if r.Asked == 0 {
		r.Asked = 100
	}
	made, err := b.CreateReplay(t.Context(), TestActor(), r)
	require.NoError(t, err)
	return made
}

// ReleaseBatch releases a batch of a replay.
func (b *Bundle) ReleaseBatch(t *testing.T, r webhook.Replay, seq int64, limit int) webhook.ReplayStatus {
	t.Helper()
	st, err := b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: r.ID, Seq: seq, Limit: limit, Now: time.Now()})
	require.NoError(t, err)
	return st
}

// Left are the deliveries that the relay would take now, each in a run.
func (b *Bundle) Left(t *testing.T) map[webhook.DeliveryID]int {
	t.Helper()
	starts, err := b.TakeStarts(t.Context(), "test", 1000)
	require.NoError(t, err)
	runs := map[webhook.DeliveryID]int{}
	for _, start := range starts {
		runs[start.DeliveryID] = start.Run
	}
	return runs
}

// Discarded discards a dead letter.
func (b *Bundle) Discarded(t *testing.T, id webhook.DeliveryID) webhook.DeliveryID {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `update deliveries set state = 6, seq = seq + 1 where id = $1`, id)
	require.NoError(t, err)
	return id
}

// FillOutbox puts deliveries into the outbox that the relay has taken so many times, and is to
// take next in a while.
func (b *Bundle) FillOutbox(t *testing.T, n, relayed int, due time.Duration) {
	t.Helper()
	_, err := b.Pool().Exec(t.Context(), `
		insert into outbox (delivery_id, event_id, endpoint_id, tenant_id, event_type, run, created_at, give_up_at, relay_at, relayed)
		select gen_random_uuid(), e.id, p.id, 'x', 'x', 1, now(), now() + interval '1 day', now() + $2::bigint * interval '1 millisecond', $3
		from generate_series(1, $1), (select gen_random_uuid() id) e, (select gen_random_uuid() id) p`, n, due.Milliseconds(), relayed)
	require.NoError(t, err)
}

// AskReplay stores a command for a replay.
func (b *Bundle) AskReplay(t *testing.T, r webhook.Replay, c webhook.ReplayCommand) webhook.Replay {
	t.Helper()
	r, err := b.CommandReplay(t.Context(), TestActor(), "acme", r.ID, c)
	require.NoError(t, err)
	return r
}
