package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// Deliveries with a trace are found in the inputs of all workflows that make attempts.
func TestTracedDeliveriesOfInputs(t *testing.T) {
	t.Parallel()
	state := func(tenant string, trace webhook.Trace) workflows.DeliveryState {
		return workflows.DeliveryState{Ref: webhook.Ref{TenantID: tenant}, Trace: trace}
	}
	member := func(tenant string, trace webhook.Trace) *workflows.Member {
		return &workflows.Member{DeliveryState: state(tenant, trace)}
	}
	for _, c := range []struct {
		input any
		want  map[string]webhook.Trace
	}{
		{workflows.DeliveryInput{Members: []*workflows.Member{member("one", "a")}}, map[string]webhook.Trace{"one": "a"}},
		{workflows.DeliveryInput{Members: []*workflows.Member{member("one", "")}}, map[string]webhook.Trace{}},
		{workflows.DeliveryInput{Members: []*workflows.Member{member("two", "b"), member("three", ""), nil, member("four", "c")}},
			map[string]webhook.Trace{"two": "b", "four": "c"}},
		// It waits for a month.
		{workflows.DeadLetterInput{DeadLetters: []*workflows.DeadLetter{{DeliveryState: state("one", "a")}}}, map[string]webhook.Trace{}},
		{nil, map[string]webhook.Trace{}},
	} {
		got := map[string]webhook.Trace{}
		eachTraced(c.input, func(ref webhook.Ref, trace webhook.Trace) { got[ref.TenantID] = trace })
		require.Equal(t, c.want, got)
	}
}
