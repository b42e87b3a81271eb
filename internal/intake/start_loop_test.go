package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// A single delivery gets a workflow of its own.
func TestSingleDeliveryHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c})
	start := enginetest.Accepted(1).Deliveries[0]
	d.starts.start([]webhook.Start{start})
	require.Len(t, f.Starts, 1)
	request := f.Starts[0]
	require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
	require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
	input := enginetest.MemberOf(t, request)
	require.Equal(t, start.Ref, input.Ref)
	require.Equal(t, 1, input.Run)
	require.WithinDuration(t, start.GiveUpAt, input.GiveUpAt, 0)
}

// Deliveries that arrive during a start share the next ones, in as few workflows as possible.
func TestQueuedDeliveriesShareWorkflows(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c, MaxPerWorkflow: 10})
	open := f.Shut()
	first, rest := enginetest.Accepted(1), enginetest.Accepted(25)
	d.Accepted(first)
	d.lifetime.Go(d.starts.run)
	require.Eventually(t, func() bool { return len(f.Started()) == 1 }, 20*time.Second, time.Millisecond)
	d.Accepted(rest)
	open()
	require.Eventually(t, func() bool { return len(f.Started()) == 4 }, 20*time.Second, time.Millisecond)
	d.stop()
	require.Equal(t, first.Deliveries[0].WorkflowID(), f.Starts[0].GetWorkflowId(), "it was alone")

	var got []*workflows.Member
	for i, width := range []int{10, 10, 5} {
		request := f.Starts[1+i]
		require.Equal(t, "DeliveryWorkflow", request.GetWorkflowType().GetName())
		require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, request.GetWorkflowIdReusePolicy())
		group := rest.Deliveries[len(got):][:width]
		require.Equal(t, webhook.SharedWorkflowID(group), request.GetWorkflowId())
		require.Contains(t, string(request.GetUserMetadata().GetSummary().GetData()), fmt.Sprintf("%d deliveries", width))
		got = append(got, enginetest.MembersOf(t, request)...)
	}
	for i, start := range rest.Deliveries {
		require.Equal(t, start.Ref, got[i].Ref, "each once, in their order")
		require.WithinDuration(t, start.GiveUpAt, got[i].GiveUpAt, 0)
	}
	require.Zero(t, d.queue.permits.Tenants())
}

// A scheduled delivery and a later run do not share a workflow. A relayed delivery does.
func TestScheduledHaveOwnWorkflows(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c})
	all := enginetest.Accepted(6).Deliveries
	all[0].NotBefore = time.Now().Add(time.Hour)
	all[1].Run = 2
	all[2].Relayed = 2
	all[3].NotBefore, all[3].Relayed = time.Now().Add(-time.Second), 1 // its time has come
	d.starts.start(all)
	var own []string
	shared := 0
	for _, request := range f.Started() {
		if workflows.IsShared(request.GetWorkflowId()) {
			shared++
			require.Equal(t, webhook.SharedWorkflowID(all[1:]), request.GetWorkflowId())
			continue
		}
		own = append(own, request.GetWorkflowId())
	}
	require.Equal(t, 1, shared)
	require.Equal(t, []string{all[0].WorkflowID()}, own)
}

// Whether a delivery's time has come is decided by the database's clock, not by the process's.
func TestScheduledByDatabaseClock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		off, ahead time.Duration // the database's clock; deliver_at, by it
		waits      bool
	}{
		"it is ahead, and the time has come":   {10 * time.Minute, -time.Minute, false},
		"it is ahead, and the time is to come": {10 * time.Minute, time.Minute, true},
		"it is behind, and the time has come":  {-10 * time.Minute, -time.Minute, false},
		"it is behind, and the time is ahead":  {-10 * time.Minute, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now().Add(test.off)
			set := func(all webhook.Accepted) webhook.Accepted {
				for i := range all.Deliveries {
					all.Deliveries[i].NotBefore = now.Add(test.ahead)
				}
				return all
			}
			f, client := enginetest.New(t)
			d := setup(t, parts{Client: client, LocalWorker: true, Now: func() time.Time { return now }})

			// Its payload is handed over when it may be sent at once, and it may share a workflow then.
			all := set(enginetest.Accepted(engine.ConcurrentStarts + 1))
			d.Accepted(all)
			_, handedOver := d.fresh.Take(all.Deliveries[0].Ref)
			require.NotEqual(t, test.waits, handedOver)
			batch := d.starts.nextBatch()
			require.Equal(t, test.waits, len(batch) == engine.ConcurrentStarts, "no more go alone than can be started at a time")
			d.starts.start(batch)
			shared, own := enginetest.Groups(t, f)
			require.Equal(t, test.waits, len(shared) == 0)
			require.Equal(t, test.waits, len(own) == len(batch))

			// A delivery to an unhealthy endpoint is parked when its time has come.
			unhealthy := set(enginetest.Accepted(1)).Deliveries[0]
			collecting := setup(t, parts{Admission: unhealthyEndpoints(unhealthy), Now: func() time.Time { return now }})
			collecting.queue.permits.Overdraw(unhealthy.TenantID, 1)
			require.NotEqual(t, test.waits, collecting.starts.setAside(unhealthy))
		})
	}
}

// With MaxPerWorkflow 1 no delivery shares a workflow; one that is left over has its own.
func TestMaxPerWorkflow(t *testing.T) {
	t.Parallel()
	for width, want := range map[int][2]int{1: {0, 7}, 2: {3, 1}, 3: {2, 1}, 6: {1, 1}, 7: {1, 0}, 50: {1, 0}} {
		f, c := enginetest.New(t)
		d := setup(t, parts{Client: c, MaxPerWorkflow: width})
		d.starts.start(enginetest.Accepted(7).Deliveries)
		got := [2]int{}
		for _, request := range f.Started() {
			if workflows.IsShared(request.GetWorkflowId()) {
				got[0]++
			} else {
				got[1]++
			}
		}
		require.Equal(t, want, got, "%d per workflow", width)
	}
}

// A released delivery shares a workflow with others, whatever its run, and continues from its status.
func TestReleasedShare(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c})
	_, all := enginetest.HeldFor(4)
	all[1].Run, all[1].Resume.Run, all[1].Resume.Attempts = 3, 3, 17
	all[2].Resume = nil // a new one
	all[3].Relayed = 1
	d.starts.start(all)
	shared, own := enginetest.Groups(t, f)
	require.Empty(t, own)
	require.Empty(t, f.Signals)
	require.Len(t, shared, 1)
	require.Len(t, shared[0], len(all))
	for i, start := range all {
		require.Equal(t, &workflows.Member{DeliveryState: workflows.DeliveryState{Ref: start.Ref, Progress: start.Progress()}}, shared[0][i])
	}

	// Held again meanwhile, and released again, it is another workflow: the id of the
	// first must not stand in its way.
	again := *all[0].Resume
	again.Seq++
	all[0].Resume = &again
	d.starts.start(all)
	require.NotEqual(t, f.Starts[0].GetWorkflowId(), f.Starts[1].GetWorkflowId())
}

// A table of what decides about sharing: slow deliveries share among themselves, new or released. One that waits for its time
// has its own workflow, however often it was relayed, and whichever run it is.
func TestSharing(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	slowOne, fastOne := webhook.NewEndpointID(), webhook.NewEndpointID()
	d := setup(t, parts{Client: c, Admission: admissionStub{slow: map[webhook.EndpointID]bool{slowOne: true}}})
	type kind struct {
		slow, held, later, opened bool
		relayed                   int
	}
	var (
		all   []webhook.Start
		kinds = map[webhook.DeliveryID]kind{}
	)
	for n := range 3 * 16 {
		k := kind{slow: n&1 > 0, held: n&2 > 0, later: n&4 > 0, opened: n&8 > 0, relayed: n / 16}
		start := enginetest.Accepted(1).Deliveries[0]
		if start.EndpointID = fastOne; k.slow {
			start.EndpointID = slowOne
		}
		start.DeliveryID = webhook.DeliveryIDOf(start.EventID, start.EndpointID)
		start.Relayed = k.relayed
		if k.opened {
			start.Run = 2
		}
		if k.held {
			start.Resume = &webhook.Progress{Run: start.Run, Seq: 1, State: webhook.StateHeld}
		}
		if k.later {
			start.NotBefore = time.Now().Add(time.Hour)
		}
		all = append(all, start)
		kinds[start.DeliveryID] = k
	}
	d.starts.start(all)

	shared, own := enginetest.Groups(t, f)
	require.Len(t, shared, 2)
	seen := map[webhook.DeliveryID]bool{}
	see := func(id webhook.DeliveryID, alone bool) kind {
		k := kinds[id]
		require.Equal(t, alone, k.later, "%+v", k)
		require.False(t, seen[id], "%+v", k)
		seen[id] = true
		return k
	}
	for _, group := range shared {
		slow := kinds[group[0].DeliveryID].slow
		for _, member := range group {
			require.Equal(t, slow, see(member.DeliveryID, false).slow)
		}
	}
	for _, in := range own {
		see(in.DeliveryID, true)
	}
	require.Len(t, seen, len(all))
}

// A delivery to a slow receiver among fast ones has its own workflow.
func TestSingleSlowDeliveryHasItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	batch := enginetest.Accepted(4).Deliveries
	d := setup(t, parts{Client: c, Admission: admissionStub{slow: map[webhook.EndpointID]bool{batch[2].EndpointID: true}}})
	d.starts.start(batch)
	shared, own := enginetest.Groups(t, f)
	require.Len(t, shared, 1)
	require.Len(t, shared[0], 3)
	require.Len(t, own, 1)
	require.Equal(t, batch[2].Ref, own[0].Ref)
}

// A released delivery that is alone continues in its own workflow, although there was one with that id, and needs a claim.
func TestStartReleased(t *testing.T) {
	t.Parallel()
	for _, run := range []int{1, 2} {
		for _, relayed := range []int{0, 1, 2, 5} {
			f, c := enginetest.New(t)
			d := setup(t, parts{Client: c})
			_, all := enginetest.HeldFor(1)
			start := all[0]
			start.Run, start.Resume.Run, start.Relayed = run, run, relayed
			d.starts.start(all)
			d.starts.start([]webhook.Start{start})
			require.Empty(t, f.Signals)
			require.Len(t, f.Starts, 2)
			request := f.Starts[1]
			require.Equal(t, start.WorkflowID(), request.GetWorkflowId())
			require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, request.GetWorkflowIdReusePolicy())
			require.Equal(t, &workflows.Member{
				DeliveryState: workflows.DeliveryState{Ref: start.Ref, Progress: *start.Resume},
			}, enginetest.MemberOf(t, request))
		}
	}
}
