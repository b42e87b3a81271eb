package monitor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Of too many unhealthy endpoints, those that are sent nothing are shared.
func TestSharedHealthIsBounded(t *testing.T) {
	t.Parallel()
	g := admission.New(admission.Config{})
	s := newSharing(Config{Admission: endpointStates{g}})
	require.Empty(t, s.unhealthy())
	enter := func(deferFor time.Duration) webhook.EndpointID {
		id := webhook.NewEndpointID()
		pass := g.Acquire(t.Context(), admission.Request{Endpoint: id, Delivery: webhook.DeliveryIDOf(webhook.NewEventID(), id)}).Permit
		pass.Done(admission.Result{Latency: time.Millisecond, DeferFor: deferFor})
		return id
	}
	var blocked []webhook.EndpointID
	for i := range 2 * maxShared {
		enter(0)
		if i%500 == 0 {
			blocked = append(blocked, enter(time.Hour))
		}
	}
	got := s.unhealthy()
	require.Len(t, got, maxShared)
	for _, id := range blocked {
		require.Equal(t, webhook.ReasonRetryAfter, got[id].DeferReason)
		require.Equal(t, webhook.ReasonRetryAfter, got[id].BlockReason)
		require.WithinDuration(t, time.Now().Add(time.Hour), got[id].BlockedUntil, time.Minute)
	}
}

// What a process has shared is removed when it ends.
func TestHealthIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, false)
	p := b.process(t)
	for range 5 {
		b.send(t, p, 1, 503)
	}
	require.NoError(t, p.sharing.write(t.Context(), p.sharing.unhealthy()))
	seen, err := b.own.EndpointHealth.Observations(t.Context(), "acme", b.endpoint.ID, "")
	require.NoError(t, err)
	require.Len(t, seen, 1)
	require.Equal(t, webhook.CircuitOpen, seen[0].Circuit)
	p.sharing.withdraw(t.Context())
	seen, err = b.own.EndpointHealth.Observations(t.Context(), "acme", b.endpoint.ID, "")
	require.NoError(t, err)
	require.Empty(t, seen)
}

// Stop does not outlast its context while what this process sees cannot be written.
func TestStopCutsOffPublishing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.own.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), `lock table endpoint_health`)
	require.NoError(t, err)

	p := b.process(t)
	p.sharing.every = time.Millisecond
	p.Start(t.Context())
	storetest.AwaitTableLock(t, b.own.Pool(), "endpoint_health")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	p.Stop(over)
	require.Less(t, time.Since(began), shareTimeout/2)
}

// The view adds what this process sees to what others share, and closes circuits here at
// once and in other processes when they look.
func TestViewOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setBreaker(t, false)
	one, other := b.process(t), b.process(t)
	view, alone := NewView(one.store.EndpointHealth, endpointStates{one.controller}, nil, "one"), NewView(b.own.EndpointHealth, nil, nil, "")
	for _, p := range []*process{one, other} {
		for range 5 {
			b.send(t, p, 1, 503)
		}
	}
	require.NoError(t, one.store.EndpointHealth.WriteObservations(t.Context(), "one", one.sharing.unhealthy()))
	require.NoError(t, other.store.EndpointHealth.WriteObservations(t.Context(), "other", other.sharing.unhealthy()))
	for _, v := range []*View{view, alone} {
		h, err := v.Health(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		require.Equal(t, 10, h.Observed.Failed, "each process counts once")
		circuit, stale, err := v.Circuit(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		require.False(t, stale)
		require.Equal(t, webhook.CircuitOpen, circuit.Circuit)
		unknown := webhook.NewEndpointID()
		observed, _, err := v.Observed(t.Context(), "acme", []webhook.EndpointID{b.endpoint.ID, unknown})
		require.NoError(t, err)
		require.Equal(t, map[webhook.EndpointID]webhook.Observation{b.endpoint.ID: h.Observed}, observed)
	}

	_, err := view.CloseCircuit(t.Context(), webhook.Actor{}, "acme", b.endpoint.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.CircuitHalfOpen, one.circuit(b.endpoint.ID))
	require.Equal(t, webhook.CircuitOpen, other.circuit(b.endpoint.ID))
	require.NoError(t, other.sharing.closeCircuits(t.Context(), other.admission.OpenCircuits()))
	require.Equal(t, webhook.CircuitHalfOpen, other.circuit(b.endpoint.ID))
}

// owner is another process that admits the requests to an endpoint.
type owner struct {
	observed webhook.Observation
	err      error
}

func (o owner) Health(context.Context, webhook.EndpointID) (webhook.Observation, bool, error) {
	return o.observed, true, o.err
}

// What the owner says replaces what is shared. If it does not answer, that is stale.
func TestViewAsksTheOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shared, newer := webhook.Observation{Circuit: webhook.CircuitOpen, Failed: 5}, webhook.Observation{Circuit: webhook.CircuitHalfOpen, Failed: 6}
	require.NoError(t, b.own.EndpointHealth.WriteObservations(t.Context(), "owner", map[webhook.EndpointID]webhook.Observation{b.endpoint.ID: shared}))
	for _, c := range []struct {
		owner owner
		want  webhook.Observation
		stale bool
	}{
		{owner{observed: newer}, newer, false},
		{owner{err: context.DeadlineExceeded}, shared, true},
	} {
		v := NewView(b.own.EndpointHealth, nil, c.owner, "")
		h, err := v.Health(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		require.Equal(t, c.want, h.Observed)
		require.Equal(t, c.stale, h.Stale)
		circuit, stale, err := v.Circuit(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		require.Equal(t, c.want, circuit)
		require.Equal(t, c.stale, stale)
		observed, stale, err := v.Observed(t.Context(), "acme", []webhook.EndpointID{b.endpoint.ID})
		require.NoError(t, err)
		require.Equal(t, map[webhook.EndpointID]webhook.Observation{b.endpoint.ID: c.want}, observed)
		require.Equal(t, c.stale, stale)
		observed, stale, err = v.Observed(t.Context(), "acme", []webhook.EndpointID{b.endpoint.ID, b.ops.ID})
		require.NoError(t, err)
		require.Equal(t, map[webhook.EndpointID]webhook.Observation{b.endpoint.ID: shared}, observed, "no owner is asked for a list")
		require.False(t, stale)
	}
}

// A process that has just started knows the attempts of the last 15 minutes from the statistics; what the processes remember
// counts where it is more.
func TestHealthKnowsItsHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t)
	view := NewView(p.store.EndpointHealth, endpointStates{p.controller}, nil, "one")
	health := func() webhook.Health {
		t.Helper()
		h, err := view.Health(t.Context(), "acme", b.endpoint.ID)
		require.NoError(t, err)
		return h
	}
	h := health()
	_, known := h.Observed.SuccessRate()
	require.False(t, known)

	row := webhook.StatisticsRow{TenantID: "acme", EndpointID: b.endpoint.ID, Minute: time.Now().UTC().Truncate(time.Minute)}
	row.Counts.Attempts[webhook.ClassDelivered], row.Counts.Attempts[webhook.ClassHTTP5xx], row.Counts.FirstAttempts = 2, 1, 1
	require.NoError(t, p.store.Statistics.AddStatistics(t.Context(), webhook.StatisticsFlush{Seq: 1, Rows: []webhook.StatisticsRow{row}}))
	h = health()
	require.Equal(t, [4]int{2, 1, 1, 2}, [4]int{h.Observed.Delivered, h.Observed.Failed, h.Observed.First, h.Observed.Retries})

	for range 4 {
		b.send(t, p, 1, 200)
	}
	h = health()
	require.Equal(t, [4]int{4, 0, 4, 0}, [4]int{h.Observed.Delivered, h.Observed.Failed, h.Observed.First, h.Observed.Retries})
}
