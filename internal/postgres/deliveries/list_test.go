package deliveries_test

import (
	"testing"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPatternsKeepThePlansOfLists(t *testing.T) {
	t.Parallel()
	b, patterns := storetest.PatternBundle(t)
	for pattern, broad := range patterns {
		for _, states := range [][]webhook.State{nil, {webhook.StateDeadLettered}} {
			sql, args := deliveries.ListDeliveries("acme", webhook.DeliveryFilter{EventType: pattern, States: states}, webhook.Page{Limit: 50})
			storetest.RequireListPlan(t, b, broad, sql, args)
		}
	}
}
