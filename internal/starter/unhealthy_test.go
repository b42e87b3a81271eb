package starter

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// admissionStub is an admission with given forecasts.
type admissionStub struct {
	slow, unhealthy map[webhook.EndpointID]bool
	wait            map[webhook.EndpointID]time.Duration
	releasable      func(webhook.EndpointID) int
	elsewhere       map[webhook.EndpointID]bool // admitted by another process
}

func (a admissionStub) LikelySlow(id webhook.EndpointID) bool { return a.slow[id] }
func (a admissionStub) Admits(id webhook.EndpointID) bool     { return !a.elsewhere[id] }

func (a admissionStub) Releasable(id webhook.EndpointID) int { return a.releasable(id) }

func (a admissionStub) Forecast(id webhook.EndpointID) admission.Forecast {
	return admission.Forecast{Wait: a.wait[id], Unhealthy: a.unhealthy[id]}
}

func upTo(n int) func(webhook.EndpointID) int { return func(webhook.EndpointID) int { return n } }

// unhealthyEndpoints is an admission for which the endpoints are unhealthy, and half of them slow.
func unhealthyEndpoints(all ...webhook.Start) admissionStub {
	g := admissionStub{slow: map[webhook.EndpointID]bool{}, unhealthy: map[webhook.EndpointID]bool{}}
	for i, start := range all {
		g.slow[start.EndpointID], g.unhealthy[start.EndpointID] = i%2 == 0, true
	}
	return g
}

func refsOf(starts []webhook.Start) (refs []webhook.Ref) {
	for _, s := range starts {
		refs = append(refs, s.Ref)
	}
	return refs
}

// Deliveries that are posted one by one for unhealthy endpoints share a workflow, and do not delay others.
func TestUnhealthyShareAWorkflow(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	all := accepted(10).Deliveries
	unhealthy, well := all[:5], all[5:]
	d := setup(t, Config{Client: c, Admission: unhealthyEndpoints(unhealthy...)})
	d.workers.Go(d.runStartLoop)
	for n := range well {
		d.Accepted(webhook.Accepted{Deliveries: unhealthy[n : n+1]})
		d.Accepted(webhook.Accepted{Deliveries: well[n : n+1]})
		require.Eventually(t, func() bool { return len(f.started()) == n+1 && d.unhealthy.Len() == n+1 }, 20*time.Second, time.Millisecond)
	}
	require.Equal(t, len(unhealthy), d.Waiting())
	require.Eventually(t, func() bool { return d.permits.Held("acme") == 0 }, 20*time.Second, time.Millisecond, "their queue has a bound of its own")
	began := time.Now()
	d.workers.Go(d.startUnhealthy)
	require.Eventually(t, func() bool { return len(f.started()) == len(well)+1 }, 20*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), unhealthyWait)
	d.Stop()
	shared, own := groups(t, f)
	require.Len(t, own, len(well))
	for n := range well {
		require.Equal(t, well[n].Ref, own[n].Ref)
	}
	require.Len(t, shared, 1)
	var together []webhook.Ref
	for _, delivery := range shared[0] {
		together = append(together, delivery.Ref)
	}
	require.ElementsMatch(t, refsOf(unhealthy), together)
	require.Zero(t, d.Waiting())
}

// However many they are, they are started in full workflows at once; what arrives during these starts is collected again.
func TestUnhealthyStartInFullWorkflows(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	all := accepted(26).Deliveries
	d := setup(t, Config{Client: c, MaxPerWorkflow: 10, Admission: unhealthyEndpoints(all...)})
	put := func(some []webhook.Start) {
		d.permits.Overdraw("acme", len(some))
		for _, s := range some {
			require.True(t, d.setAside(s))
		}
	}
	put(all[:25])
	open := f.shut()
	d.workers.Go(d.startUnhealthy)
	require.Eventually(t, func() bool { return d.unhealthy.Len() == 15 }, 20*time.Second, time.Millisecond, "the first are being started")
	open()
	require.Eventually(t, func() bool { return len(f.started()) == 3 }, 20*time.Second, time.Millisecond)
	shared, _ := groups(t, f)
	require.Len(t, shared[0], 10)
	require.Len(t, shared[1], 10)
	require.Len(t, shared[2], 5)

	open = f.shut()
	put(all[:2])
	require.Eventually(t, func() bool { return len(f.started()) == 4 }, 20*time.Second, time.Millisecond)
	put(all[25:])
	opened := time.Now()
	open()
	require.Eventually(t, func() bool { return len(f.started()) == 5 }, 20*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(opened), unhealthyWait)
	d.Stop()
	require.Equal(t, all[25].WorkflowID(), f.starts[4].GetWorkflowId(), "a single one gets its own workflow")
}

// What is set aside, and where.
func TestSetAside(t *testing.T) {
	t.Parallel()
	wait := func(s *webhook.Start, wait time.Duration) admissionStub {
		return admissionStub{wait: map[webhook.EndpointID]time.Duration{s.EndpointID: wait}}
	}
	type change func(s *webhook.Start, c *Config)
	const started, collected = "started", "collected"
	for name, test := range map[string]struct {
		change change
		want   string
	}{
		"unhealthy":               {func(*webhook.Start, *Config) {}, collected},
		"its wait is long":        {func(s *webhook.Start, c *Config) { c.Admission = wait(s, unhealthyWait+1) }, collected},
		"its wait is not so long": {func(s *webhook.Start, c *Config) { c.Admission = wait(s, unhealthyWait) }, started},
		"relayed once":            {func(s *webhook.Start, _ *Config) { s.Relayed = 1 }, collected},
		"relayed twice":           {func(s *webhook.Start, _ *Config) { s.Relayed = 2 }, collected},
		"its time has come":       {func(s *webhook.Start, _ *Config) { s.NotBefore = time.Now().Add(-time.Second) }, collected},
		"healthy":                 {func(_ *webhook.Start, c *Config) { c.Admission = admissionStub{} }, started},
		"no admission":            {func(_ *webhook.Start, c *Config) { c.Admission = nil }, started},
		"one per workflow":        {func(_ *webhook.Start, c *Config) { c.MaxPerWorkflow = 1 }, started},
		"released":                {func(s *webhook.Start, _ *Config) { s.Resume = &webhook.Progress{Run: 1, State: webhook.StateHeld} }, started},
		"scheduled":               {func(s *webhook.Start, _ *Config) { s.NotBefore = time.Now().Add(time.Hour) }, started},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := accepted(3) // the others are healthy
				start := &all.Deliveries[1]
				c := Config{Admission: unhealthyEndpoints(*start)}
				test.change(start, &c)
				d := New(c)
				d.Accepted(all)
				want, permits := refsOf(all.Deliveries), map[string]int{started: 3, collected: 2}
				if test.want != started {
					want = []webhook.Ref{want[0], want[2]}
				}
				var got []webhook.Ref
				for d.queue.Len() > 0 { // with MaxPerWorkflow 1 a batch is one delivery
					got = append(got, refsOf(d.nextBatch())...)
				}
				require.Equal(t, want, got)
				require.Equal(t, test.want == collected, d.unhealthy.Len() == 1)
				require.Equal(t, permits[test.want], d.permits.Held("acme"))
			})
		})
	}
}

// Deliveries that do not fit into the queue of unhealthy endpoints are started at once, slow ones among themselves.
func TestUnhealthyQueueIsBounded(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	d := setup(t, Config{Client: c, QueueLength: 10})
	a := accepted(40)
	g := unhealthyEndpoints(a.Deliveries...)
	g.slow = g.unhealthy
	d.admission = g
	d.Accepted(a)
	d.startBatch(d.nextBatch())
	shared, own := groups(t, f)
	require.Empty(t, own)
	require.Len(t, shared, 1)
	require.Positive(t, d.unhealthy.Len())
	require.LessOrEqual(t, d.unhealthy.Len(), 10)
	require.Len(t, shared[0], 40-d.unhealthy.Len())
	require.Zero(t, d.permits.Tenants())
}

// Deliveries that are set aside stay in the outbox when the process stops, when they have waited too long, or when Temporal goes
// down: a start would need a client.
func TestUnhealthyStayInTheOutbox(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age     time.Duration
		wait    time.Duration
		do      func(*Starter)
		waiting int
	}{
		"the process stops":     {wait: unhealthyWait - 1, waiting: 5},
		"they have become late": {age: queueTime - unhealthyWait, wait: unhealthyWait},
		"Temporal goes down":    {wait: unhealthyWait, do: func(d *Starter) { d.temporalDown.Store(true) }},
		"they come late":        {wait: 2 * unhealthyWait, age: 2 * queueTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := accepted(5)
				for i := range a.Deliveries {
					a.Deliveries[i].ReceivedAt = time.Now().Add(-test.age)
				}
				record := &outbox{}
				d := setup(t, Config{Outbox: record, Admission: unhealthyEndpoints(a.Deliveries...)})
				d.workers.Go(d.runStartLoop)
				d.workers.Go(d.startUnhealthy)
				d.Accepted(a)
				synctest.Wait()
				if test.do != nil {
					test.do(d)
				}
				<-time.After(test.wait)
				synctest.Wait()
				require.Equal(t, test.waiting, d.Waiting())
				d.Stop()
				require.Len(t, record.due, test.waiting, "they are left to another process: nothing is started at the end")
				require.Zero(t, d.permits.Tenants())
			})
		})
	}
}

// Start runs the loop of the unhealthy endpoints.
func TestStartServesUnhealthy(t *testing.T) {
	t.Parallel()
	f, c := newFrontend(t)
	a := accepted(3)
	d := New(Config{Client: c, Logger: slog.New(slog.DiscardHandler), Admission: unhealthyEndpoints(a.Deliveries...)})
	d.Start(nil)
	d.Accepted(a)
	require.Eventually(t, func() bool { return len(f.started()) == 1 }, 20*time.Second, time.Millisecond)
	d.Stop()
	require.Len(t, inputOf[workflows.FanoutInput](t, f.starts[0].GetInput()).Deliveries, 3)
}
