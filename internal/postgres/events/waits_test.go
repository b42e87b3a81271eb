package events_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

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
			require.Equal(t, taken, got.accepted.Repeated)
			require.Equal(t, taken, earlier.Event.ID == got.accepted.Event.ID)
			stored := map[bool]int{true: 1, false: 2}[taken]
			require.Equal(t, stored, b.Count(t, "events"))
			require.Equal(t, stored, b.Count(t, "outbox"))
			require.Equal(t, 2, b.Count(t, "idempotency_keys"))
		})
	}
}
