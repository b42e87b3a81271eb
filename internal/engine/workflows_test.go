package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// A search attribute holds as many ids as Temporal accepts by default.
func TestSharedAttributesFit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 50, 60, 61, 200} {
		ids, ok := workflows.SharedAttributes(refsOf(enginetest.Accepted(n).Deliveries), workflows.MaxEventIDs).GetKeywordList(eventIDsKey())
		require.True(t, ok)
		require.Len(t, ids, min(n, workflows.MaxEventIDs))
		size := 0
		for _, id := range ids {
			require.LessOrEqual(t, len(id)+3, workflows.EventIDBytes, "as JSON: quotes and a comma")
			size += len(id) + 3
		}
		require.Less(t, size+1, 2048)
	}
}

// The search attributes of a shared workflow are what all its deliveries have in common.
func TestSharedAttributes(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, Config{Client: c})
	same := enginetest.Accepted(1).Deliveries[0]
	for name, test := range map[string]struct {
		change func(*webhook.Start)
		lacks  string
	}{
		"the same":         {func(*webhook.Start) {}, ""},
		"another tenant":   {func(s *webhook.Start) { s.TenantID = "other" }, "TenantId"},
		"another endpoint": {func(s *webhook.Start) { s.EndpointID = webhook.NewEndpointID() }, "EndpointId"},
		"another type":     {func(s *webhook.Start) { s.EventType = "order.sent" }, "EventType"},
	} {
		two := same
		two.EventID = webhook.NewEventID()
		test.change(&two)
		group := []webhook.Start{same, two, same}
		before := len(f.Starts)
		require.NoError(t, d.Workflows.startShared(t.Context(), webhook.SharedWorkflowID(group), group), name)
		fields := f.Starts[before].GetSearchAttributes().GetIndexedFields()
		for attribute, want := range map[string]string{
			"TenantId": `"acme"`, "EndpointId": `"` + same.EndpointID.String() + `"`, "EventType": `"order.paid"`,
			"EventIds": `["` + same.EventID.String() + `","` + two.EventID.String() + `"]`,
		} {
			if attribute == test.lacks {
				require.NotContains(t, fields, attribute, name)
			} else {
				require.Equal(t, want, string(fields[attribute].GetData()), "%s: %s", name, attribute)
			}
		}
		require.NotContains(t, fields, "DeliveryState", name)
	}
}

func eventIDsKey() temporal.SearchAttributeKeyKeywordList {
	return temporal.NewSearchAttributeKeyKeywordList(workflows.AttributeEventIDs)
}
