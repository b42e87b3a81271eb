package starter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

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

func (o *overdue) ReleaseForgotten(context.Context, int) error { return nil }

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
		d := waitingDelivery()
		d.WorkflowID = id
		all = append(all, d)
		members = append(members, workflows.Status{Ref: d.Ref})
	}
	return all, members
}

// A workflow whose task fails again and again does not count as running. It is ended with a reason that tells it from one that a
// person has terminated, and another one continues from the store.
func TestStuckWorkflowIsReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tries int32
		stuck bool
	}{"tried once": {1, false}, "a worker died, and another": {stuckAttempts - 1, false}, "again and again": {stuckAttempts, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFrontend(t)
			d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler)})
			delivery := waitingDelivery()
			f.there = map[string]enumspb.WorkflowExecutionStatus{delivery.WorkflowID: running}
			f.tries = map[string]int32{delivery.WorkflowID: test.tries}
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			if !test.stuck {
				require.Empty(t, f.terminated)
				require.Empty(t, f.started())
				return
			}
			require.Len(t, f.terminated, 1)
			require.Equal(t, workflows.ReasonStuck, f.terminated[0].GetReason())
			require.Equal(t, "a run", f.terminated[0].GetWorkflowExecution().GetRunId(), "that one and none that has come since")
			require.Len(t, f.started(), 1)
			require.False(t, inputOf[workflows.DeliveryInput](t, f.started()[0].GetInput()).Terminated)

			// The process that ended it died before it started another. Other processes do not take that for a termination by hand.
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			require.Len(t, f.started(), 2)
			require.False(t, inputOf[workflows.DeliveryInput](t, f.started()[1].GetInput()).Terminated)
			f.reasons[delivery.WorkflowID] = "by hand"
			require.NoError(t, d.revive(t.Context(), &delivery, webhook.PendingCommand{}))
			require.True(t, inputOf[workflows.DeliveryInput](t, f.started()[2].GetInput()).Terminated)
		})
	}
}

// A shared workflow that is stuck leaves all deliveries that it was started with to another one, at once. If that is stuck, too,
// each gets its own: one of them may make every workflow stuck.
func TestStuckSharedWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	all, _ := waitingIn("fanout/evt_1/it", 5)
	o := &overdue{late: all}
	d := setup(t, Config{Client: c, Overdue: o})
	var in workflows.FanoutInput
	for i := range all[:4] {
		in.Deliveries = append(in.Deliveries, workflows.FanoutDelivery{Ref: all[i].Ref})
	}
	f.there = map[string]enumspb.WorkflowExecutionStatus{"fanout/evt_1/it": running}
	f.tries, f.inputs = map[string]int32{"fanout/evt_1/it": stuckAttempts}, map[string]any{"fanout/evt_1/it": in}
	d.reviveShared(&reconcileRound{map[string]*workflow{}}, "fanout/evt_1/it", all[4:]) // one is overdue: the others are not yet
	require.Len(t, f.started(), 1)
	again := f.started()[0].GetWorkflowId()
	require.True(t, workflows.IsSuccessor(again))
	require.True(t, workflows.IsFanout(again))
	group := inputOf[workflows.FanoutInput](t, f.started()[0].GetInput())
	require.Len(t, group.Deliveries, 5)
	for i := range group.Deliveries {
		require.Equal(t, all[i].Progress, group.Deliveries[i].Progress)
	}
	require.Len(t, o.taken[again], 5, "the store says so before it begins")

	for i := range o.late {
		o.late[i].WorkflowID = again
	}
	f.there[again], f.tries[again], f.inputs[again] = running, stuckAttempts, group
	d.reviveShared(&reconcileRound{map[string]*workflow{}}, again, o.late[:1])
	require.Len(t, f.started(), 6)
	shared, own := groups(t, f)
	require.Len(t, shared, 1)
	require.Len(t, own, 5)
	for _, in := range own {
		require.True(t, in.Unconfirmed)
	}
}

// A round inspects and queries a shared workflow once, over all pages.
func TestRoundInspectsOnce(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	const n = 2*relayBatch + 50
	all, members := waitingIn("fanout/evt_1/it", n)
	o := &overdue{late: all}
	d := setup(t, Config{Client: c, Overdue: o})
	f.there = map[string]enumspb.WorkflowExecutionStatus{"fanout/evt_1/it": running}
	f.members = members[:n-3] // three are missing
	d.reconcileAll(o.Overdue, d.reconcileEvery)
	require.Equal(t, 1, f.asked["fanout/evt_1/it"])
	require.Equal(t, 1, f.asked["query fanout/evt_1/it"])
	require.Len(t, f.started(), 1)
	require.Len(t, inputOf[workflows.FanoutInput](t, f.started()[0].GetInput()).Deliveries, 3, "in a shared workflow")

	// A workflow whose task waits for a worker cannot answer, and gets no query.
	f.asked, f.tries = nil, map[string]int32{"fanout/evt_1/it": 1}
	d.reconcileAll(o.Overdue, d.reconcileEvery)
	require.Equal(t, 1, f.asked["fanout/evt_1/it"])
	require.Zero(t, f.asked["query fanout/evt_1/it"])
	require.Len(t, f.started(), 1)
}

// The first round comes soon after the start, later ones as often as is set.
func TestFirstRoundIsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &overdue{}
		d := setup(t, Config{Overdue: o})
		began := time.Now()
		d.workers.Go(d.reconcile)
		<-time.After(12 * time.Minute)
		d.Stop()
		require.Len(t, o.rounds, 3)
		require.LessOrEqual(t, o.rounds[0].Sub(began), 30*time.Second)
		require.Equal(t, defaultReconcileEvery, o.rounds[1].Sub(o.rounds[0]))
		require.Equal(t, defaultReconcileEvery, o.rounds[2].Sub(o.rounds[1]))
	})
}

// A round that could not read, or found Temporal down after it had read, is repeated soon, and reads the same deliveries.
func TestFailedRoundIsRepeated(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(*Starter, *overdue){
		"the store is away": func(_ *Starter, o *overdue) {
			o.fails = []error{&webhook.Error{Code: webhook.CodeUnavailable, Message: "the store is away"}}
		},
		"Temporal is down": func(d *Starter, o *overdue) {
			o.late = []webhook.Delivery{waitingDelivery()}
			o.onRead = func() { d.temporalDown.Store(true) }
		},
		"Temporal turns out to be down": func(d *Starter, o *overdue) {
			o.late = []webhook.Delivery{waitingDelivery()}
			o.onRead = func() {
				d.suspect()
				time.AfterFunc(time.Second, func() {
					d.temporalDown.Store(true)
					d.settle()
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := newFrontend(t)
				o := &overdue{}
				d := setup(t, Config{Client: c, Overdue: o})
				fails(d, o)
				d.workers.Go(d.reconcile)
				<-time.After(firstReconcile + 5*time.Second)
				o.mu.Lock()
				o.late, o.onRead = nil, nil
				o.mu.Unlock()
				d.temporalDown.Store(false)
				<-time.After(2 * defaultReconcileEvery)
				d.Stop()
				require.Len(t, o.rounds, 3)
				require.Less(t, o.rounds[1].Sub(o.rounds[0]), firstReconcile+5*time.Second)
				require.Less(t, o.again[1], firstReconcile)
				require.Equal(t, defaultReconcileEvery, o.rounds[2].Sub(o.rounds[1]))
				require.Equal(t, defaultReconcileEvery, o.again[2])
			})
		})
	}
}

// The relay inspects several workflows at a time, so that one slow answer delays few.
func TestRelayInspectsConcurrently(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c})
	var asking sync.WaitGroup
	asking.Add(concurrentLookups)
	f.onDescribe = func() {
		asking.Done()
		asking.Wait() // for the others
	}
	f.there, f.begins = map[string]enumspb.WorkflowExecutionStatus{}, true
	starts := accepted(concurrentLookups).Deliveries
	for i := range starts {
		starts[i].AssignedTo, starts[i].Assigned, starts[i].Relayed = "fanout/"+starts[i].WorkflowID(), true, 2
		f.there[starts[i].AssignedTo] = completed
	}
	began := time.Now()
	d.startAssigned(starts)
	require.Less(t, time.Since(began), startTimeout, "none has waited in vain")
	require.Len(t, ids(f), 2*concurrentLookups, "each gets its own workflow, as the shared one has ended")
}

// A delivery's own workflow that is stuck accepts signals and handles none: when a command is signalled again, the workflow is ended,
// and another one begins with it.
func TestUnansweredCommandEndsAStuckWorkflow(t *testing.T) {
	t.Parallel()
	for _, state := range []webhook.State{webhook.StateHeld, webhook.StateRetrying, webhook.StateDeadLettered} {
		f, c := newFrontend(t)
		d := setup(t, Config{Client: c})
		delivery := waitingDelivery()
		delivery.State, delivery.CompletedAt = state, time.Now()
		own := delivery.Ref.WorkflowID(delivery.Run)
		f.begins = true
		f.there, f.tries = map[string]enumspb.WorkflowExecutionStatus{own: running}, map[string]int32{own: stuckAttempts}
		command := webhook.CommandedDelivery{Delivery: delivery, Command: webhook.PendingCommand{ID: 9, Command: webhook.CommandCancel}}
		require.NoError(t, d.passCommand(t.Context(), command))
		require.Len(t, f.signalled, 1, "the first signal does not check the workflow")
		require.Empty(t, f.terminated)

		command.Signalled, f.signalled = 1, nil
		require.NoError(t, d.passCommand(t.Context(), command))
		require.Len(t, f.terminated, 1, state)
		require.Equal(t, workflows.ReasonStuck, f.terminated[0].GetReason())
		require.Len(t, f.started(), 1, state)
		require.Empty(t, f.signalled, state)
		if state != webhook.StateDeadLettered {
			require.Equal(t, command.Command, inputOf[workflows.DeliveryInput](t, f.started()[0].GetInput()).Command, state)
		}
	}
}

// So is one that is in the way of a replay, or of a release, when that is relayed again.
func TestStuckWorkflowGivesWay(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"a replay": false, "a release": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, relayed := range []int{0, 1, 2} {
				f, c := newFrontend(t)
				d := setup(t, Config{Client: c})
				start := accepted(1).Deliveries[0]
				start.Relayed = relayed
				if start.Run = 2; held {
					start.Resume = &webhook.Progress{Run: 2, Seq: 1, State: webhook.StateHeld, GiveUpAt: start.GiveUpAt}
					f.failing(alreadyStarted())
				}
				own := start.WorkflowID()
				f.there, f.tries = map[string]enumspb.WorkflowExecutionStatus{own: running}, map[string]int32{own: stuckAttempts}
				require.NoError(t, d.startDelivery(t.Context(), start))
				if relayed <= 1 {
					require.Empty(t, f.terminated, "it may be about to go on")
					continue
				}
				require.Len(t, f.terminated, 1)
				require.Equal(t, workflows.ReasonStuck, f.terminated[0].GetReason())
				require.Empty(t, f.signalled)
				require.Len(t, f.started(), 1)
			}
		})
	}
}

// If no worker runs, deliveries wait in the shared workflow that was started for them. They are started one by one only when that
// workflow has ended.
func TestRelayKeepsAssignedWorkflows(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	o := &outbox{}
	d := setup(t, Config{Client: c, Outbox: o})
	f.there, f.begins = map[string]enumspb.WorkflowExecutionStatus{}, true
	all := accepted(200).Deliveries
	relayed := func() {
		taken := slices.Clone(all)
		o.starts = taken
		d.relayOnce()
		all = taken // as TakeStarts has assigned them
	}
	relayed()
	require.Len(t, f.started(), 2)
	f.tries = map[string]int32{}
	for _, request := range f.started() {
		f.tries[request.GetWorkflowId()] = 1
	}
	const shared = 2 // the same groups have the same ids: started again, there is one of each
	for range 5 {
		relayed()
		require.Len(t, ids(f), shared, "no further workflow")
	}

	// One of them has ended without a word of its deliveries.
	gone := all[0].AssignedTo
	f.there[gone] = completed
	relayed()
	require.Len(t, ids(f), shared+100)

	// And the other was never there.
	clear(f.there)
	f.tries = nil
	before := len(f.started())
	relayed()
	require.LessOrEqual(t, len(f.started())-before, 4, "in shared workflows, as always")
}

// ids are the workflows that were started.
func ids(f *frontend) map[string]bool {
	all := map[string]bool{}
	for _, request := range f.started() {
		all[request.GetWorkflowId()] = true
	}
	return all
}
