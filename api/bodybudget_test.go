package api

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// In any order of reservations and releases the limits hold, nothing that fits is refused, and
// nothing is left after everything was released.
func TestTheBodyBudgetKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBodyBudget(webhook.DefaultMaxPayload)
		var all []*bodyReservation
		sum := func(of func(*bodyReservation) bool) (n int) {
			for _, r := range all {
				if of(r) {
					n += r.bytes
				}
			}
			return n
		}
		everything := func(*bodyReservation) bool { return true }
		isLarge := func(r *bodyReservation) bool { return r.large }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				tenant := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f"}).Draw(t, "tenant")
				all = append(all, &bodyReservation{budget: b, tenant: tenant})
			},
			"reserve": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing has begun")
				}
				r := rapid.SampledFrom(all).Draw(t, "of")
				n := rapid.SampledFrom([]int{1, 300, bodyStep, 40 * bodyStep, 8 << 20}).Draw(t, "bytes")
				large := rapid.Bool().Draw(t, "large")
				ofTenant, before := sum(func(o *bodyReservation) bool { return o.tenant == r.tenant }), r.bytes
				total, totalLarge := sum(everything), sum(isLarge)
				err := r.reserve(n, large)
				if err == nil {
					require.Equal(t, before+n, r.bytes)
					return
				}
				require.Equal(t, before, r.bytes, "a refused reservation holds nothing")
				if webhook.CodeOf(err) == webhook.CodeRateLimited {
					require.NotEmpty(t, r.tenant)
					require.Greater(t, ofTenant+n, b.tenantMax)
					return
				}
				require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))
				overLarge := (large || r.large) && totalLarge+before+n > b.max-b.smallReserve
				require.True(t, total+n > b.max || overLarge)
			},
			"release": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing has begun")
				}
				rapid.SampledFrom(all).Draw(t, "of").release()
			},
			"": func(t *rapid.T) {
				require.Equal(t, sum(everything), b.total)
				require.Equal(t, sum(isLarge), b.large)
				require.LessOrEqual(t, b.total, b.max)
				require.LessOrEqual(t, b.large, b.max-b.smallReserve)
				for tenant, n := range b.byTenant {
					require.LessOrEqual(t, n, b.tenantMax, tenant)
					require.Positive(t, n, "a tenant without a reservation is removed")
				}
			},
		})
		for _, r := range all {
			r.release()
			r.release()
		}
		require.Zero(t, b.held())
		require.Zero(t, b.large)
		require.Empty(t, b.byTenant)
	})
}

// Four tenants with large bodies fill their part of the budget. A fifth tenant can still reserve
// small bodies, but no large one.
func TestRoomIsKeptForSmallBodies(t *testing.T) {
	t.Parallel()
	b := newBodyBudget(webhook.DefaultMaxPayload)
	for _, tenant := range []string{"a", "b", "c"} {
		require.NoError(t, (&bodyReservation{budget: b, tenant: tenant}).reserve(b.tenantMax, true))
	}
	err := (&bodyReservation{budget: b, tenant: "d"}).reserve(bodyStep, true)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err))

	small := &bodyReservation{budget: b, tenant: "d"}
	require.NoError(t, small.reserve(bodyStep, false))
	err = small.reserve(bodyStep, true)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "the body is larger than a step")
	for range b.tenantMax/bodyStep - 1 {
		require.NoError(t, (&bodyReservation{budget: b, tenant: "d"}).reserve(bodyStep, false))
	}
	err = (&bodyReservation{budget: b, tenant: "d"}).reserve(1, false)
	require.Equal(t, webhook.CodeRateLimited, webhook.CodeOf(err))
	err = (&bodyReservation{budget: b, tenant: "e"}).reserve(1, false)
	require.Equal(t, webhook.CodeUnavailable, webhook.CodeOf(err), "everything is held")
}

func TestBodiesOfLargePayloads(t *testing.T) {
	t.Parallel()
	for maxPayload, want := range map[int]int{1: 64 << 20, webhook.DefaultMaxPayload: 64 << 20, webhook.LargestMaxPayload: 64 << 20, 8 << 20: 128 << 20} {
		b := newBodyBudget(maxPayload)
		require.Equal(t, want, b.max)
		require.Equal(t, want/4, b.tenantMax)
	}
}
