package eventtypes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/webhook"
)

// One tenant's payloads, however long they take, leave a place of each schema for another tenant's.
func TestTenantsShareTheChecksOfASchema(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		compiled, err := catalogue.Compile([]byte(`{"type":"object"}`))
		require.NoError(t, err)
		s := shared(compiled)
		held := 0
		for s.places.TryAcquire("slow") { // as payloads that are under way
			held++
		}
		require.Equal(t, catalogue.MaxCheckers/2, held)
		check := func(tenant, payload string) ([]catalogue.Mismatch, error) {
			return s.validate(t.Context(), tenant, []byte(payload), time.Second)
		}
		found, err := check("quick", `{}`)
		require.NoError(t, err)
		require.Empty(t, found)
		found, err = check("quick", `1`)
		require.NoError(t, err)
		require.Len(t, found, 1)

		begun := time.Now()
		_, err = check("slow", `{}`)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "its own wait for their turn, and not for ever")
		require.Equal(t, time.Second, time.Since(begun))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.validate(ctx, "slow", []byte(`{}`), time.Second)
		require.ErrorIs(t, err, context.Canceled)

		waited := make(chan error, 1)
		go func() {
			_, err := check("slow", `{}`)
			waited <- err
		}()
		synctest.Wait()
		s.places.Release("slow", 1)
		require.NoError(t, <-waited)
	})
}
