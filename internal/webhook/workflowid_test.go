package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func startsOf(n int) []*webhook.Start {
	all := make([]*webhook.Start, n)
	for i := range all {
		event, endpoint := webhook.NewEventID(), webhook.NewEndpointID()
		all[i] = &webhook.Start{Ref: webhook.Ref{DeliveryID: webhook.DeliveryIDOf(event, endpoint), EventID: event, EndpointID: endpoint}, Run: 1}
	}
	return all
}

// Each run has a workflow of its own, which the id tells.
func TestWorkflowIDOfARun(t *testing.T) {
	t.Parallel()
	start := startsOf(1)[0]
	first := "delivery/" + start.EventID.String() + "/" + start.EndpointID.String()
	require.Equal(t, first, start.WorkflowID())
	require.Equal(t, first, start.Ref.WorkflowID(1))
	start.Run = 2
	require.Equal(t, first+"/2", start.WorkflowID())
}

// As many as may share a workflow do, in their order; what is left over alone has its own, and what has a deliver_at gets none.
func TestAssign(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, webhook.MaxAssigned - 1, webhook.MaxAssigned, webhook.MaxAssigned + 1, 2*webhook.MaxAssigned + 2} {
		all := startsOf(n)
		late := map[int]bool{}
		if n > 2 {
			late[1] = true
			all[1].NotBefore = time.Now()
		}
		webhook.Assign(all)
		var ids []string
		sharing := map[string]int{}
		for i, start := range all {
			if late[i] {
				require.Empty(t, start.AssignedTo)
				continue
			}
			if sharing[start.AssignedTo] == 0 {
				ids = append(ids, start.AssignedTo)
			}
			require.Equal(t, ids[len(ids)-1], start.AssignedTo, "in their order")
			sharing[start.AssignedTo]++
		}
		left := n - len(late)
		for i, id := range ids {
			require.Equal(t, min(webhook.MaxAssigned, left), sharing[id], "group %d of %d", i, n)
			require.Equal(t, sharing[id] > 1, id[:len(webhook.SharedWorkflowPrefix)] == webhook.SharedWorkflowPrefix)
			left -= sharing[id]
		}
		require.Zero(t, left)
	}
}

// The id of a shared workflow follows from its deliveries, their order, runs and steps.
func TestSharedWorkflowID(t *testing.T) {
	t.Parallel()
	var all []webhook.Start
	for _, start := range startsOf(3) {
		all = append(all, *start)
	}
	id := webhook.SharedWorkflowID(all)
	require.Equal(t, id, webhook.SharedWorkflowID(all))
	seen := map[string]bool{id: true}
	differs := func(change func()) {
		change()
		other := webhook.SharedWorkflowID(all)
		require.False(t, seen[other])
		seen[other] = true
	}
	differs(func() { all[0], all[1] = all[1], all[0] })
	differs(func() { all[2].Run = 2 })
	differs(func() { all[2].Run = 3 })
	differs(func() { all[2].Resume = &webhook.Progress{Run: 3, Seq: 4} })
	differs(func() { all[2].Resume = &webhook.Progress{Run: 3, Seq: 6} })
	differs(func() { all = all[:2] })
}
