package deliveries_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Whatever a delivery is held by, it goes on when its endpoint is active or deleted, unless something else is about to release it.
func TestReleasable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   string // of the delivery
		endpoint string
		released bool
	}{
		"held by nobody":                         {released: true},
		"held by its own workflow":               {change: `workflow_id = 'delivery/it'`, released: true},
		"held by a shared workflow that is gone": {change: `workflow_id = 'fanout/it'`, released: true},
		"because its endpoint was disabled":      {change: `reason = 'endpoint_disabled'`, released: true},
		"an endpoint that was never changed":     {endpoint: `updated_at = now() - interval '90 days'`, released: true},
		"its endpoint is paused":                 {endpoint: `state = 1`},
		"its endpoint is disabled":               {endpoint: `state = 2`},
		"its endpoint is deleted":                {endpoint: `deleted_at = now(), state = 1`, released: true},
		"a backlog":                              {change: `reason = 'backlog'`, released: true},
		"an internal fault":                      {change: `reason = 'internal'`, released: true},
		"to be cancelled":                        {change: `command = 1`},
		"being sent":                             {change: `owner = gen_random_uuid(), owner_until = now() + interval '1 minute'`},
		"being recorded, maybe":                  {change: `owner = gen_random_uuid(), owner_until = now() - interval '110 seconds'`},
		"was being sent":                         {change: `owner = gen_random_uuid(), owner_until = now() - interval '121 seconds'`, released: true},
		"not held":                               {change: `state = 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			if c.change != "" {
				b.Exec(t, `update deliveries set `+c.change)
			}
			if c.endpoint != "" {
				b.Exec(t, `update endpoints set `+c.endpoint)
			}
			want := []webhook.DeliveryID(nil)
			if c.released {
				want = append(want, start.DeliveryID)
			}
			require.Equal(t, want, b.Releasable(t))
			require.Empty(t, b.Releasable(t), "it is on its way")
		})
	}
}

// A step or a claim that is refused ends no outbox row: it may be all that is left of a release.
func TestWhatIsRefusedLeavesTheRelease(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]func(*testing.T, *storetest.Bundle, webhook.Start){
		"a step": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			status, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
			require.NoError(t, err)
			require.Equal(t, webhook.StateHeld, status.State)
		},
		"a claim": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "me", time.Minute))
			require.NoError(t, err)
			require.False(t, begun.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			require.Zero(t, b.Count(t, "outbox"))
			require.Len(t, b.Releasable(t), 1)
			require.Equal(t, 1, b.Count(t, "outbox"))
			refused(t, b, start) // by a workflow that knows of neither
			require.Equal(t, 1, b.Count(t, "outbox"), "released, and to be started")

			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 1, "me", time.Minute))
			require.NoError(t, err)
			require.True(t, begun.Granted)
			require.Zero(t, b.Count(t, "outbox"), "a claim is a first write")
		})
	}
}

// A release that is committed while a step waits for its lock is not seen by that: the relay
// finds out that the delivery has gone on.
func TestTheRelayEndsWhatHasGoneOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state webhook.State
		gone  bool
	}{
		"it was sent, and waits":  {webhook.StateRetrying, true},
		"it was delivered":        {webhook.StateDelivered, true},
		"it was held once more":   {webhook.StateHeld, false},
		"it is a dead letter now": {webhook.StateDeadLettered, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			tx, err := b.Pool().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			held, err := deliveries.LockDeliveries(t.Context(), tx, [][16]byte{start.DeliveryID}, "d.state = 2")
			require.NoError(t, err)
			require.NoError(t, deliveries.Release(t.Context(), tx, b.Now(), held))
			step := storetest.StepOf(start, 2, c.state)
			if c.state == webhook.StateHeld {
				step.WorkflowID = storetest.NoWorkflow
			}
			recorded := make(chan error, 1)
			go func() {
				_, err := b.RecordStep(t.Context(), step)
				recorded <- err
			}()
			b.WaitForALock(t)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-recorded)
			require.Equal(t, 1, b.Count(t, "outbox"))
			b.Exec(t, `update outbox set relay_at = now()`)

			left, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			if c.gone {
				require.Empty(t, left)
				require.Zero(t, b.Count(t, "outbox"))
				return
			}
			require.Len(t, left, 1, "it was released before that, or after: once more does no harm")
			require.Equal(t, 2, left[0].Resume.Seq)
		})
	}
}
