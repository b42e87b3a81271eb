package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// What is written at once is what is written after a look at each request.
func TestWriteAtOnceWritesTheSame(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.AddEndpoint(t, "order.*")
	batch := webhook.NewBatch{TenantID: "acme", IdempotencyKey: "a key", BodySHA256: [32]byte{7}}
	for i, kind := range []string{"order.paid", "order.sent", "invoice.sent"} {
		e := storetest.NewEvent(kind)
		e.BodySHA256[0] = byte(i)
		batch.Events = append(batch.Events, e)
	}
	batch.Events[0].ExternalID = "order-1"
	batch.Events[1].DeliverAt = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	in := events.IntakeOf(batch)
	require.NoError(t, b.Match(t.Context(), in))
	conn, err := b.Intake.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()

	rows := func() (all []string) {
		for _, table := range []string{"events", "outbox", "idempotency_keys"} {
			some := storetest.Query[string](t, b.Stores, `select (to_jsonb(r) - 'relay_at')::text from `+table+` r order by 1`)
			require.NotEmpty(t, some, table)
			all = append(all, some...)
		}
		storetest.RequireRelayedIn(t, b.Stores, deliveries.RelayAfter)
		return all
	}
	written, err := events.WriteAtOnce(t.Context(), conn, []*events.Intake{in})
	require.NoError(t, err)
	require.True(t, written)
	atOnce := rows()
	require.Len(t, atOnce, 3+4+2)
	_, err = b.Pool().Exec(t.Context(), `truncate events, outbox, idempotency_keys`)
	require.NoError(t, err)
	require.NoError(t, events.WriteChecked(t.Context(), conn, []*events.Intake{in}))
	require.Equal(t, rows(), atOnce)
}

// A key that another process is just taking is waited for; whether it is taken in the end
// decides.
func TestAcceptWaitsForAKeyThatIsBeingTaken(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"taken": true, "given back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			first := storetest.NewEvent("order.paid")
			first.ExternalID = "first"
			earlier, err := b.Accept(t.Context(), first)
			require.NoError(t, err)
			other, err := b.Pool().Begin(t.Context())
			require.NoError(t, err)
			_, err = other.Exec(t.Context(), `
				insert into idempotency_keys (tenant_id, kind, key, event_id, body_sha256, created_at)
				select tenant_id, kind, 'second', event_id, body_sha256, created_at from idempotency_keys where key = 'first'`)
			require.NoError(t, err)

			second := storetest.NewEvent("order.paid")
			second.ExternalID = "second"
			type answer struct {
				accepted webhook.Accepted
				err      error
			}
			answered := make(chan answer, 1)
			go func() {
				a, err := b.Accept(t.Context(), second)
				answered <- answer{a, err}
			}()
			require.Eventually(t, func() bool { return storetest.WaitsForALock(t, b.Stores) }, storetest.Eventually, storetest.Poll)
			if taken {
				require.NoError(t, other.Commit(t.Context()))
			} else {
				require.NoError(t, other.Rollback(t.Context()))
			}
			got := <-answered
			require.NoError(t, got.err)
			require.Equal(t, taken, got.accepted.Replayed)
			require.Equal(t, taken, earlier.Event.ID == got.accepted.Event.ID)
			stored := map[bool]int{true: 1, false: 2}[taken]
			require.Equal(t, stored, b.Count(t, "events"))
			require.Equal(t, stored, b.Count(t, "outbox"))
			require.Equal(t, 2, b.Count(t, "idempotency_keys"))
		})
	}
}
