package workflows_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// keepers are the workflows that keep the dead letters of shared ones. The test environment can
// start no second workflow, so this notes what is started; as in a Temporal there is
// one workflow of an id.
type keepers struct {
	mu    sync.Mutex
	kept  []activities.Keeping
	calls int
	fail  func(h activities.DeliveryState) error // called before each call, unless nil
}

// Keep notes the start of a workflow that keeps dead letters.
func (s *keepers) Keep(_ context.Context, id string, all []activities.DeliveryState) (left []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += len(all)
	if s.fail != nil {
		if err := s.fail(all[0]); err != nil {
			return nil, err
		}
	}
	isOf := func(k activities.Keeping) bool { return k.WorkflowID == id }
	if i := slices.IndexFunc(s.kept, isOf); i >= 0 {
		for n, dead := range all {
			if !slices.ContainsFunc(s.kept[i].DeadLetters, func(k activities.DeliveryState) bool { return k.DeliveryID == dead.DeliveryID }) {
				left = append(left, n)
			}
		}
		return left, nil
	}
	s.kept = append(s.kept, activities.Keeping{WorkflowID: id, DeadLetters: all})
	return nil, nil
}

// of is the workflow that keeps a delivery; "" if none does.
func (s *keepers) of(id webhook.DeliveryID) (workflow string, dead activities.DeliveryState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		for _, dead := range k.DeadLetters {
			if dead.DeliveryID == id {
				return k.WorkflowID, dead
			}
		}
	}
	return "", dead
}

func (s *keepers) failing(fail func(activities.DeliveryState) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *keepers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.kept {
		n += len(k.DeadLetters)
	}
	return n
}

// acceptFor stores an event for an endpoint and returns its delivery.
func (b *bundle) acceptFor(t require.TestingT, endpoint webhook.EndpointID) webhook.Start {
	accepted, err := b.store.Events.Accept(context.Background(), webhook.NewEvent{
		TenantID: tenant, Type: "order.paid", Payload: []byte(`{"order":17}`), EndpointIDs: []webhook.EndpointID{endpoint},
	})
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, 1)
	return accepted.Deliveries[0]
}

// acceptSome stores n events for the endpoint.
func (b *bundle) acceptSome(t require.TestingT, n int) []webhook.Start {
	starts := make([]webhook.Start, n)
	for i := range starts {
		starts[i] = b.acceptFor(t, b.endpoint.ID)
	}
	return starts
}

// setState pauses the endpoint, or makes it active again.
func (b *bundle) setState(t require.TestingT, id webhook.EndpointID, state webhook.EndpointState) {
	_, err := b.store.Endpoints.UpdateEndpoint(context.Background(), webhook.Actor{Name: "test"}, tenant, id, func(e *webhook.Endpoint) error {
		e.State = state
		return nil
	})
	require.NoError(t, err)
}

// share begins the workflow that makes the first attempts of deliveries together.
func (b *bundle) share(t stopper, fastWait time.Duration, starts ...webhook.Start) *life {
	return b.shareIn(t, "this process", fastWait, starts...)
}

func (b *bundle) shareIn(t stopper, process string, fastWait time.Duration, starts ...webhook.Start) *life {
	l := b.beginIn(t, process, starts[0], fastWait)
	l.input, l.id = workflows.InputOf(starts...), webhook.SharedWorkflowID(starts)
	return l
}

// isKept makes the life that of the workflow to which a dead letter went.
func (l *life) isKept(start webhook.Start) *life {
	id, dead := l.keepers.of(start.DeliveryID)
	require.NotEmpty(l.t, id, "it is not kept")
	l.start = webhook.Start{Ref: dead.Ref, Run: dead.Run, GiveUpAt: dead.GiveUpAt}
	l.states, l.id, l.next = nil, id, "DeadLetterWorkflow"
	l.input = workflows.DeadLetterInput{DeadLetters: []*workflows.DeadLetter{workflows.NewDeadLetter(workflows.DeliveryState(dead))}}
	return l
}

// kept requires that a delivery was given up in the shared workflow, and is kept by the workflow that the store names.
func (l *life) kept(start webhook.Start, reason string, attempts int) activities.DeliveryState {
	id, dead := l.keepers.of(start.DeliveryID)
	require.NotEmpty(l.t, id, "it is not kept")
	d := l.b.delivery(l.t, start.DeliveryID)
	require.Equal(l.t, webhook.StateDeadLettered, d.State)
	require.Equal(l.t, reason, d.Reason)
	require.Equal(l.t, attempts, d.Attempts)
	require.Equal(l.t, attempts, requestsOf(l.b, start.EventID))
	require.Equal(l.t, id, d.WorkflowID)
	require.Equal(l.t, start.Ref, dead.Ref)
	require.Equal(l.t, d.Progress, dead.Progress)
	require.False(l.t, dead.Unconfirmed, "the store knows already")
	return dead
}

// stayed requires that the delivery ended in the shared workflow.
func (l *life) stayed(start webhook.Start, state webhook.State, attempts int) webhook.Delivery {
	id, _ := l.keepers.of(start.DeliveryID)
	require.Empty(l.t, id, "it is kept as a dead letter")
	d := l.b.delivery(l.t, start.DeliveryID)
	require.Equal(l.t, state, d.State)
	require.Equal(l.t, attempts, d.Attempts)
	require.Equal(l.t, l.id, d.WorkflowID)
	require.Equal(l.t, attempts, requestsOf(l.b, start.EventID))
	return d
}

// countLocal notes the local activities of the next run.
func countLocal(into *[]string) func(environment) {
	var mu sync.Mutex
	return func(env environment) {
		env.SetOnLocalActivityStartedListener(func(info *activityInfo, _ contextOf, _ []any) {
			mu.Lock()
			defer mu.Unlock()
			*into = append(*into, info.ActivityType.Name)
		})
	}
}

// outboxRows is how many deliveries have no first write yet.
func (b *bundle) outboxRows(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select count(*) from outbox`).Scan(&n))
	return n
}

// expire ends whatever claim there is on a delivery.
func (b *bundle) expire(t require.TestingT, start webhook.Start) {
	b.exec(t, `update deliveries set owner_until = now() - interval '1 second' where id = $1 and owner is not null`, start.DeliveryID)
}
