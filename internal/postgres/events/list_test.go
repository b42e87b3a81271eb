package events_test

import (
	"testing"

	"github.com/everpost/everpost/internal/postgres/events"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func TestPatternsKeepThePlansOfLists(t *testing.T) {
	t.Parallel()
	b, patterns := storetest.PatternBundle(t)
	for pattern, broad := range patterns {
		sql, args := events.ListEvents("acme", webhook.EventFilter{Type: pattern}, webhook.Page{Limit: 50}, [16]byte{})
		storetest.RequireListPlan(t, b, broad, sql, args)
	}
}
