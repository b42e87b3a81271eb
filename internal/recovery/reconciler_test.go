package recovery

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// overdue is a store of overdue deliveries: pages are read in order, each delivery once.
type overdue struct {
	mu     sync.Mutex
	late   []webhook.Delivery
	rounds []time.Time
	fails  []error         // of the first reads
	again  []time.Duration // of the rounds
	onRead func()
	taken  map[string][]webhook.DeliveryID // over by which workflow
}

func (o *overdue) Overdue(_ context.Context, from webhook.Cursor, again time.Duration, limit int) ([]webhook.Delivery, webhook.Cursor, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := int(from.At.Unix())
	if from == (webhook.Cursor{}) {
		o.rounds, at = append(o.rounds, time.Now()), 0
		o.again = append(o.again, again)
	}
	if o.onRead != nil {
		o.onRead()
	}
	if len(o.fails) > 0 {
		err := o.fails[0]
		o.fails = o.fails[1:]
		return nil, from, err
	}
	end := min(at+limit, len(o.late))
	return o.late[at:end], webhook.Cursor{At: time.Unix(int64(end), 0)}, nil
}

func (o *overdue) Expired(context.Context, time.Duration, webhook.Cursor, time.Duration, int) ([]webhook.Delivery, webhook.Cursor, error) {
	return nil, webhook.Cursor{}, nil
}

func (o *overdue) TakeOver(_ context.Context, from, to string, ids []webhook.DeliveryID) (all []webhook.Delivery, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.late {
		d := o.late[i]
		if d.WorkflowID != from || !slices.Contains(ids, d.DeliveryID) {
			continue
		}
		d.WorkflowID = to
		all = append(all, d)
		if o.taken == nil {
			o.taken = map[string][]webhook.DeliveryID{}
		}
		o.taken[to] = append(o.taken[to], d.DeliveryID)
	}
	return all, nil
}

// waitingIn are deliveries for which the store names a shared workflow.
func waitingIn(id string, n int) (all []webhook.Delivery, members []workflows.Status) {
	for range n {
		d := enginetest.WaitingDelivery()
		d.WorkflowID = id
		all = append(all, d)
		members = append(members, workflows.Status{Ref: d.Ref})
	}
	return all, members
}

// stuckAttempts is after how many attempts of its task a workflow is stuck.
const stuckAttempts = 5

// A shared workflow that is stuck leaves all deliveries that it was started with to another one, at once. If that is stuck, too,
// each gets its own: one of them may make every workflow stuck.
func TestStuckSharedWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	all, _ := waitingIn("fanout/evt_1/it", 5)
	o := &overdue{late: all}
	d := setup(t, parts{Client: c, Overdue: o})
	var in workflows.DeliveryInput
	for i := range all[:4] {
		in.Members = append(in.Members, &workflows.Member{DeliveryState: workflows.DeliveryState{Ref: all[i].Ref}})
	}
	f.There = map[string]enumspb.WorkflowExecutionStatus{"fanout/evt_1/it": enginetest.Running}
	f.Tries, f.Inputs = map[string]int32{"fanout/evt_1/it": stuckAttempts}, map[string]any{"fanout/evt_1/it": in}
	d.reconciler.reviveShared(t.Context(), &round{map[string]*engine.Workflow{}}, "fanout/evt_1/it", all[4:]) // one is overdue: the others are not yet
	require.Len(t, f.Started(), 1)
	again := f.Started()[0].GetWorkflowId()
	require.True(t, workflows.IsSuccessor(again))
	require.True(t, workflows.IsShared(again))
	group := enginetest.InputOf[workflows.DeliveryInput](t, f.Started()[0].GetInput())
	require.Len(t, group.Members, 5)
	for i := range group.Members {
		require.Equal(t, all[i].Progress, group.Members[i].Progress)
	}
	require.Len(t, o.taken[again], 5, "the store says so before it begins")

	for i := range o.late {
		o.late[i].WorkflowID = again
	}
	f.There[again], f.Tries[again], f.Inputs[again] = enginetest.Running, stuckAttempts, group
	d.reconciler.reviveShared(t.Context(), &round{map[string]*engine.Workflow{}}, again, o.late[:1])
	require.Len(t, f.Started(), 6)
	shared, own := enginetest.Groups(t, f)
	require.Len(t, shared, 1)
	require.Len(t, own, 5)
	for _, in := range own {
		require.True(t, in.Unconfirmed)
	}
}

// A round inspects and queries a shared workflow once, over all pages.
func TestRoundInspectsOnce(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	const n = 2*batchSize + 50
	all, members := waitingIn("fanout/evt_1/it", n)
	o := &overdue{late: all}
	d := setup(t, parts{Client: c, Overdue: o})
	f.There = map[string]enumspb.WorkflowExecutionStatus{"fanout/evt_1/it": enginetest.Running}
	f.Members = members[:n-3] // three are missing
	_, _ = d.reconciler.compareAll(t.Context(), o.Overdue)
	require.Equal(t, 1, f.Asked["fanout/evt_1/it"])
	require.Equal(t, 1, f.Asked["query fanout/evt_1/it"])
	require.Len(t, f.Started(), 1)
	require.Len(t, enginetest.MembersOf(t, f.Started()[0]), 3, "in a shared workflow")

	// A workflow whose task waits for a worker cannot answer, and gets no query.
	f.Asked, f.Tries = nil, map[string]int32{"fanout/evt_1/it": 1}
	_, _ = d.reconciler.compareAll(t.Context(), o.Overdue)
	require.Equal(t, 1, f.Asked["fanout/evt_1/it"])
	require.Zero(t, f.Asked["query fanout/evt_1/it"])
	require.Len(t, f.Started(), 1)
}

// The first round comes soon after the start, later ones as often as is set.
func TestFirstRoundIsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &overdue{}
		d := setup(t, parts{Overdue: o})
		began := time.Now()
		d.run(d.reconciler.Run)
		<-time.After(12 * time.Minute)
		d.Lifetime.Stop()
		require.Len(t, o.rounds, 3)
		require.LessOrEqual(t, o.rounds[0].Sub(began), 30*time.Second)
		require.Equal(t, defaultReconcileEvery, o.rounds[1].Sub(o.rounds[0]))
		require.Equal(t, defaultReconcileEvery, o.rounds[2].Sub(o.rounds[1]))
	})
}

// A round that could not read, or found Temporal down after it had read, is repeated soon, and reads the same deliveries.
func TestFailedRoundIsRepeated(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(*bundle, *overdue){
		"the store is away": func(_ *bundle, o *overdue) {
			o.fails = []error{&webhook.Error{Code: webhook.CodeUnavailable, Message: "the store is away"}}
		},
		"Temporal is down": func(d *bundle, o *overdue) {
			o.late = []webhook.Delivery{enginetest.WaitingDelivery()}
			o.onRead = func() { d.Health.MarkDown(errTemporalDown) }
		},
		"Temporal turns out to be down": func(d *bundle, o *overdue) {
			o.late = []webhook.Delivery{enginetest.WaitingDelivery()}
			o.onRead = func() {
				d.Calls.Try(func(context.Context) error { return serviceerror.NewUnavailable("away") }) // which raises a suspicion
				time.AfterFunc(time.Second, func() { d.Health.MarkDown(errTemporalDown) })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := enginetest.New(t)
				o := &overdue{}
				d := setup(t, parts{Client: c, Overdue: o})
				fails(d, o)
				d.run(d.reconciler.Run)
				<-time.After(firstReconcile + 5*time.Second)
				o.mu.Lock()
				o.late, o.onRead = nil, nil
				o.mu.Unlock()
				d.Health.MarkUp()
				<-time.After(2 * defaultReconcileEvery)
				d.Lifetime.Stop()
				require.Len(t, o.rounds, 3)
				require.Less(t, o.rounds[1].Sub(o.rounds[0]), firstReconcile+5*time.Second)
				require.Less(t, o.again[1], firstReconcile)
				require.Equal(t, defaultReconcileEvery, o.rounds[2].Sub(o.rounds[1]))
				require.Equal(t, defaultReconcileEvery, o.again[2])
			})
		})
	}
}
