package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/engine/enginetest"
	"github.com/everpost/everpost/internal/webhook"
)

// admissionStub is an admission with given forecasts.
type admissionStub struct {
	slow, unhealthy map[webhook.EndpointID]bool
	wait            map[webhook.EndpointID]time.Duration
	elsewhere       map[webhook.EndpointID]bool // admitted by another process
}

func (a admissionStub) LikelySlow(id webhook.EndpointID) bool { return a.slow[id] }

func (a admissionStub) Admits(id webhook.EndpointID) bool { return !a.elsewhere[id] }

func (a admissionStub) Forecast(id webhook.EndpointID) admission.Forecast {
	return admission.Forecast{Wait: a.wait[id], Unhealthy: a.unhealthy[id]}
}

// unhealthyEndpoints is an admission for which the endpoints are unhealthy, and half of them slow.
func unhealthyEndpoints(all ...webhook.Start) admissionStub {
	g := admissionStub{slow: map[webhook.EndpointID]bool{}, unhealthy: map[webhook.EndpointID]bool{}}
	for i, start := range all {
		g.slow[start.EndpointID], g.unhealthy[start.EndpointID] = i%2 == 0, true
	}
	return g
}

// Deliveries that are posted one by one for unhealthy endpoints share a workflow, and do not delay others.
func TestUnhealthyShareAWorkflow(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	all := enginetest.Accepted(10).Deliveries
	unhealthy, well := all[:5], all[5:]
	d := setup(t, parts{Client: c, Admission: unhealthyEndpoints(unhealthy...)})
	d.lifetime.Go(d.starts.run)
	for n := range well {
		d.Accepted(webhook.Accepted{Deliveries: unhealthy[n : n+1]})
		d.Accepted(webhook.Accepted{Deliveries: well[n : n+1]})
		require.Eventually(t, func() bool { return len(f.Started()) == n+1 && d.starts.unhealthy.Len() == n+1 }, 20*time.Second, time.Millisecond)
	}
	require.Equal(t, len(unhealthy), d.Waiting())
	require.Eventually(t, func() bool { return d.queue.permits.Held("acme") == 0 }, 20*time.Second, time.Millisecond, "their queue has a bound of its own")
	began := time.Now()
	d.lifetime.Go(d.starts.startUnhealthy)
	require.Eventually(t, func() bool { return len(f.Started()) == len(well)+1 }, 20*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), unhealthyWait)
	d.stop()
	shared, own := enginetest.Groups(t, f)
	require.Len(t, own, len(well))
	for n := range well {
		require.Equal(t, well[n].Ref, own[n].Ref)
	}
	require.Len(t, shared, 1)
	var together []webhook.Ref
	for _, delivery := range shared[0] {
		together = append(together, delivery.Ref)
	}
	require.ElementsMatch(t, enginetest.RefsOf(unhealthy), together)
	require.Zero(t, d.Waiting())
}

// However many they are, they are started in full workflows at once; what arrives during these starts is collected again.
func TestUnhealthyStartInFullWorkflows(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	all := enginetest.Accepted(26).Deliveries
	d := setup(t, parts{Client: c, MaxPerWorkflow: 10, Admission: unhealthyEndpoints(all...)})
	put := func(some []webhook.Start) {
		d.queue.permits.Overdraw("acme", len(some))
		for _, s := range some {
			require.True(t, d.starts.setAside(s))
		}
	}
	put(all[:25])
	open := f.Shut()
	d.lifetime.Go(d.starts.startUnhealthy)
	require.Eventually(t, func() bool { return d.starts.unhealthy.Len() == 15 }, 20*time.Second, time.Millisecond, "the first are being started")
	open()
	require.Eventually(t, func() bool { return len(f.Started()) == 3 }, 20*time.Second, time.Millisecond)
	shared, _ := enginetest.Groups(t, f)
	require.Len(t, shared[0], 10)
	require.Len(t, shared[1], 10)
	require.Len(t, shared[2], 5)

	open = f.Shut()
	put(all[:2])
	require.Eventually(t, func() bool { return len(f.Started()) == 4 }, 20*time.Second, time.Millisecond)
	put(all[25:])
	opened := time.Now()
	open()
	require.Eventually(t, func() bool { return len(f.Started()) == 5 }, 20*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(opened), unhealthyWait)
	d.stop()
	require.Equal(t, all[25].WorkflowID(), f.Starts[4].GetWorkflowId(), "a single one gets its own workflow")
}

// What is set aside, and where.
func TestSetAside(t *testing.T) {
	t.Parallel()
	wait := func(s *webhook.Start, wait time.Duration) admissionStub {
		return admissionStub{wait: map[webhook.EndpointID]time.Duration{s.EndpointID: wait}}
	}
	type change func(s *webhook.Start, c *parts)
	const started, collected = "started", "collected"
	for name, test := range map[string]struct {
		change change
		want   string
	}{
		"unhealthy":               {func(*webhook.Start, *parts) {}, collected},
		"its wait is long":        {func(s *webhook.Start, c *parts) { c.Admission = wait(s, unhealthyWait+1) }, collected},
		"its wait is not so long": {func(s *webhook.Start, c *parts) { c.Admission = wait(s, unhealthyWait) }, started},
		"relayed once":            {func(s *webhook.Start, _ *parts) { s.Relayed = 1 }, collected},
		"relayed twice":           {func(s *webhook.Start, _ *parts) { s.Relayed = 2 }, collected},
		"its time has come":       {func(s *webhook.Start, _ *parts) { s.NotBefore = time.Now().Add(-time.Second) }, collected},
		"healthy":                 {func(_ *webhook.Start, c *parts) { c.Admission = admissionStub{} }, started},
		"no admission":            {func(_ *webhook.Start, c *parts) { c.Admission = nil }, started},
		"one per workflow":        {func(_ *webhook.Start, c *parts) { c.MaxPerWorkflow = 1 }, started},
		"released":                {func(s *webhook.Start, _ *parts) { s.Resume = &webhook.Progress{Run: 1, State: webhook.StateHeld} }, started},
		"scheduled":               {func(s *webhook.Start, _ *parts) { s.NotBefore = time.Now().Add(time.Hour) }, started},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := enginetest.Accepted(3) // the others are healthy
				start := &all.Deliveries[1]
				c := parts{Admission: unhealthyEndpoints(*start)}
				test.change(start, &c)
				d := setup(t, c)
				d.Accepted(all)
				want, permits := enginetest.RefsOf(all.Deliveries), map[string]int{started: 3, collected: 2}
				if test.want != started {
					want = []webhook.Ref{want[0], want[2]}
				}
				var got []webhook.Ref
				for d.queue.waiting.Len() > 0 { // with MaxPerWorkflow 1 a batch is one delivery
					got = append(got, enginetest.RefsOf(d.starts.nextBatch())...)
				}
				require.Equal(t, want, got)
				require.Equal(t, test.want == collected, d.starts.unhealthy.Len() == 1)
				require.Equal(t, permits[test.want], d.queue.permits.Held("acme"))
			})
		})
	}
}

// Deliveries that do not fit into the queue of unhealthy endpoints are started at once, slow ones among themselves.
func TestUnhealthyQueueIsBounded(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	d := setup(t, parts{Client: c, QueueLength: 10})
	a := enginetest.Accepted(40)
	g := unhealthyEndpoints(a.Deliveries...)
	g.slow = g.unhealthy
	d.starts.admission = g
	d.Accepted(a)
	made := newStarters(time.Hour)
	defer made.stop()
	d.starts.startBatch(made, d.starts.nextBatch())
	shared, own := enginetest.Groups(t, f)
	require.Empty(t, own)
	require.Len(t, shared, 1)
	require.Positive(t, d.starts.unhealthy.Len())
	require.LessOrEqual(t, d.starts.unhealthy.Len(), 10)
	require.Len(t, shared[0], 40-d.starts.unhealthy.Len())
	require.Zero(t, d.queue.permits.Tenants())
}

// Deliveries that are set aside stay in the outbox when the process stops, when they have waited too long, or when Temporal goes
// down: a start would need a client.
func TestUnhealthyStayInTheOutbox(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age     time.Duration
		wait    time.Duration
		do      func(*bundle)
		waiting int
	}{
		"the process stops":     {wait: unhealthyWait - 1, waiting: 5},
		"they have become late": {age: queueTime - unhealthyWait, wait: unhealthyWait},
		"Temporal goes down":    {wait: unhealthyWait, do: func(d *bundle) { d.health.MarkDown(errDown) }},
		"they come late":        {wait: 2 * unhealthyWait, age: 2 * queueTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := enginetest.Accepted(5)
				for i := range a.Deliveries {
					a.Deliveries[i].ReceivedAt = time.Now().Add(-test.age)
				}
				record := &outbox{}
				d := setup(t, parts{Outbox: record, Admission: unhealthyEndpoints(a.Deliveries...)})
				d.Start()
				d.Accepted(a)
				synctest.Wait()
				if test.do != nil {
					test.do(d)
				}
				<-time.After(test.wait)
				synctest.Wait()
				require.Equal(t, test.waiting, d.Waiting())
				d.lifetime.Stop()
				require.Len(t, record.due, test.waiting, "they are left to another process: nothing is started at the end")
				require.Zero(t, d.queue.permits.Tenants())
			})
		})
	}
}

// Start runs the loop of the unhealthy endpoints.
func TestStartServesUnhealthy(t *testing.T) {
	t.Parallel()
	f, c := enginetest.New(t)
	a := enginetest.Accepted(3)
	d := setup(t, parts{Client: c, Admission: unhealthyEndpoints(a.Deliveries...)})
	d.start()
	d.Accepted(a)
	require.Eventually(t, func() bool { return len(f.Started()) == 1 }, 20*time.Second, time.Millisecond)
	d.stop()
	require.Len(t, enginetest.MembersOf(t, f.Starts[0]), 3)
}

// faulty are endpoints with internal faults.
type faulty map[webhook.EndpointID]bool

func (f faulty) IsFaulty(id webhook.EndpointID) bool { return f[id] }

// Deliveries to a faulty endpoint wait for one another: each would be held by itself.
func TestFaultyEndpointsKeepCompany(t *testing.T) {
	t.Parallel()
	all := enginetest.Accepted(3)
	d := setup(t, parts{Admission: admissionStub{}, Faults: faulty{all.Deliveries[1].EndpointID: true}})
	d.Accepted(all)
	for d.queue.waiting.Len() > 0 {
		for _, s := range d.starts.nextBatch() {
			require.NotEqual(t, all.Deliveries[1].EndpointID, s.EndpointID)
		}
	}
	require.Equal(t, 1, d.starts.unhealthy.Len())
}

// Deliveries to unhealthy endpoints are left to another process, except those whose start is under way.
func TestStopLeavesUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := enginetest.New(t)
		a := enginetest.Accepted(6)
		record := &outbox{}
		d := setup(t, parts{Client: c, Outbox: record, MaxPerWorkflow: 2, Admission: unhealthyEndpoints(a.Deliveries...)})
		d.Accepted(a)
		require.Empty(t, d.starts.nextBatch())
		open := f.Shut()
		d.lifetime.Go(d.starts.startUnhealthy)
		enginetest.Pass(unhealthyWait)
		go d.stop()
		synctest.Wait()
		open()
		synctest.Wait()
		require.Len(t, enginetest.Begun(t, f), d.starts.engine.MaxPerWorkflow())
		require.Equal(t, idsOf(a.Deliveries[2:]), record.due)
	})
}
