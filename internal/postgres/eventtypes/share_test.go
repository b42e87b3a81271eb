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

// A tenant that is alone has all places of a schema. One of another tenant is next when a place is free, and four tenants have one each.
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
		require.Equal(t, catalogue.MaxCheckers, held)
		check := func(tenant, payload string) ([]catalogue.Mismatch, error) {
			return s.validate(t.Context(), tenant, []byte(payload), time.Second)
		}
		begun := time.Now()
		_, err = check("slow", `{}`)
		require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "its own wait for their turn, and not for ever")
		require.ErrorContains(t, err, "too many payloads are being checked against this schema")
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
		quick := make(chan []catalogue.Mismatch, 1)
		go func() {
			found, _ := check("quick", `1`)
			quick <- found
		}()
		synctest.Wait()
		s.places.Release("slow", 1)
		require.Len(t, <-quick, 1, "it came later, and holds none")
		require.NoError(t, <-waited)
		s.places.Release("slow", catalogue.MaxCheckers-1)
		for _, tenant := range []string{"a", "b", "c", "d"} {
			require.True(t, s.places.TryAcquire(tenant), tenant)
		}
	})
}
