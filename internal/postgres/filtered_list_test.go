package postgres_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A list with a filter that no index serves looks at some rows, and says where it has stopped. Going on from
// there finds everything once.
func TestAFilteredListGoesOn(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Lists().Searched = 3
	var wanted []webhook.DeliveryID
	for i := range 11 {
		start := b.AcceptOne(t) // pending: a row of the outbox only
		if i%2 == 0 {
			step := storetest.StepOf(start, 1, webhook.StateRetrying)
			step.Attempt = storetest.AttemptOf(1, 1, map[bool]int{true: 503, false: 500}[i == 0 || i == 8])
			_, err := b.RecordStep(t.Context(), step)
			require.NoError(t, err)
			if i == 0 || i == 8 {
				wanted = append(wanted, start.DeliveryID)
			}
		}
	}
	slices.Reverse(wanted)
	list := func(limit int, f webhook.DeliveryFilter) (found []webhook.DeliveryID, pages int) {
		for p := (webhook.Page{Limit: limit}); ; {
			page, searched, err := b.ListDeliveries(t.Context(), "acme", f, p)
			require.NoError(t, err)
			for _, d := range page {
				found = append(found, d.DeliveryID)
			}
			pages++
			switch {
			case len(page) == limit:
				require.Zero(t, searched, "a full page goes on after its last entry")
				p.After = page[limit-1].DeliveryID
			case searched != [16]byte{}:
				p.After = searched
			default:
				return found, pages
			}
		}
	}
	for _, limit := range []int{1, 2, 50} {
		found, _ := list(limit, webhook.DeliveryFilter{Status: 503})
		require.Equal(t, wanted, found, limit)
	}
	all, pages := list(50, webhook.DeliveryFilter{EventType: "*"})
	require.Len(t, all, 11, "pending ones too, each once")
	require.Equal(t, 3, pages, "six recorded ones, three at a time, and nothing behind them")
}

// A list by tag looks at events with tags only: those without are not among the rows that it may look at.
func TestAListByTagGoesOn(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	b.Lists().Searched = 3
	var wanted []webhook.EventID
	for i := range 20 {
		in := storetest.NewEvent("order.paid")
		if i%2 == 0 {
			in.Tags = []string{"even"}
		}
		if i == 0 || i == 18 {
			in.Tags = append(in.Tags, "end")
		}
		a, err := b.Accept(t.Context(), in)
		require.NoError(t, err)
		if i == 0 || i == 18 {
			wanted = append(wanted, a.Event.ID)
		}
	}
	slices.Reverse(wanted)
	var found []webhook.EventID
	pages := 0
	for p := (webhook.Page{Limit: 50}); ; pages++ {
		page, searched, err := b.ListEvents(t.Context(), "acme", webhook.EventFilter{Tag: "end"}, p)
		require.NoError(t, err)
		for _, e := range page {
			found = append(found, e.ID)
		}
		if searched == [16]byte{} {
			break
		}
		p.After = searched
	}
	require.Equal(t, wanted, found)
	require.Equal(t, 3, pages, "three of the ten with tags at a time")
}
