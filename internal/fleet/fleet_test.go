package fleet

import (
	"context"
	"net"
	"net/rpc"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

func TestCapHoldsOverProcesses(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	var permits []*admission.Permit
	for i := range 6 {
		f := []*Fleet{a, b}[i%2]
		d := f.Acquire(t.Context(), request(endpoint, 4))
		if i < 4 {
			require.NotNil(t, d.Permit, "request %d", i)
			require.Equal(t, 15*time.Second, d.Permit.Timeout())
			require.True(t, d.Permit.Begin(t.Context()))
			permits = append(permits, d.Permit)
			continue
		}
		require.Nil(t, d.Permit)
		require.Equal(t, webhook.ReasonInFlight, d.Reason)
		require.Positive(t, d.Wait)
	}
	permits[1].Done(admission.Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true}) // b's
	require.Eventually(t, func() bool { return a.controller.Health(endpoint).Delivered == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Zero(t, b.controller.Health(endpoint).Delivered)
	d := b.Acquire(t.Context(), request(endpoint, 4))
	require.NotNil(t, d.Permit)
	for _, p := range append(permits, d.Permit) {
		p.Cancel()
	}
	require.Eventually(t, func() bool { return a.controller.Totals().InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
}

func TestLanesMoveWithWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	own, other := a.Acquire(t.Context(), request(endpoint, 2)).Permit, b.Acquire(t.Context(), request(endpoint, 2)).Permit
	require.NotNil(t, own)
	require.NotNil(t, other)

	a.Leave(t.Context())
	require.Eventually(t, func() bool { _, is := b.owner(endpoint); return is }, 5*time.Second, 5*time.Millisecond)
	require.Contains(t, b.OwnLanes(), webhook.LaneOf(endpoint))
	require.NotContains(t, a.OwnLanes(), webhook.LaneOf(endpoint))
	require.Equal(t, 2, b.controller.Health(endpoint).InFlight)
	require.Nil(t, b.Acquire(t.Context(), request(endpoint, 2)).Permit, "both are still under way")

	own.Done(admission.Result{Latency: time.Millisecond, Number: 1, Delivered: true, Answered: true})
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, 1, b.controller.Health(endpoint).Delivered)
	other.Cancel()
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
	p := a.Acquire(t.Context(), request(endpoint, 2)).Permit // a still sends what it has
	require.NotNil(t, p)
	p.Cancel()
}

func TestPermitsOfAProcessThatEndedAreGivenBack(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	require.NotNil(t, b.Acquire(t.Context(), request(endpoint, 1)).Permit)
	require.Nil(t, a.Acquire(t.Context(), request(endpoint, 1)).Permit)
	s.cutOff("b") // it dies without a word
	s.mu.Lock()
	s.seenLate = true
	s.mu.Unlock()
	b.Stop(t.Context())
	require.Eventually(t, func() bool {
		h := a.controller.Health(endpoint)
		return h.InFlight == 1 && h.Latency <= 50*time.Millisecond // which does not grow any more
	}, 5*time.Second, 5*time.Millisecond)
	s.mu.Lock()
	s.seenLate = false
	s.mu.Unlock()
	require.Eventually(t, func() bool { return a.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
	settled(t, a)
}

// A process that does not reach the database admits nothing once its leases may have ended. The one that takes its lanes counts
// what that process has under way.
func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	permit := a.Acquire(t.Context(), request(endpoint, 1)).Permit
	require.NotNil(t, permit)
	free := endpointOf(t, s, a)
	s.cutOff("a")
	cut, admitted := time.Now(), time.Duration(0)
	require.Eventually(t, func() bool {
		for _, f := range []*Fleet{a, b} {
			require.Nil(t, f.TryAcquire(request(endpoint, 1)))
		}
		if p := a.TryAcquire(request(free, 1)); p != nil {
			admitted = time.Since(cut)
			p.Cancel()
		}
		_, is := b.owner(endpoint)
		return is
	}, 15*time.Second, 5*time.Millisecond)
	require.Positive(t, admitted)
	require.LessOrEqual(t, admitted, leaseTime)
	require.Greater(t, time.Since(cut), leaseTime+500*time.Millisecond)
	require.Equal(t, 1, b.controller.Health(endpoint).InFlight)
	_, own := a.owner(endpoint)
	require.False(t, own)
	permit.Cancel()
	require.Eventually(t, func() bool { return b.controller.Health(endpoint).InFlight == 0 }, 5*time.Second, 5*time.Millisecond)
}

// A process that stands still may have requests under way for as long as their permits hold.
func TestMuteProcess(t *testing.T) {
	t.Parallel()
	s := newTable()
	a := s.join(t, "a")
	settled(t, a)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s.mu.Lock()
	s.processes["unreachable"] = webhook.Process{ID: "unreachable", Address: listener.Addr().String()} // it accepts connections and does nothing
	for i := range s.lanes {
		s.lanes[i], s.expires[i] = webhook.Lane{Owner: "unreachable", Epoch: s.lanes[i].Epoch + 1}, time.Now()
	}
	s.mu.Unlock()
	require.Eventually(t, func() bool { // a has taken them back
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.lanes[0].epoch == 3 && a.lanes[webhook.Lanes-1].epoch == 3
	}, 5*time.Second, 5*time.Millisecond)
	short, long := request(webhook.NewEndpointID(), 1), request(webhook.NewEndpointID(), 1)
	short.Limits.Timeout, long.Limits.AutoTimeout = time.Second, true
	decide := func(r admission.Request) (d admission.Decision) {
		require.Eventually(t, func() bool {
			d = a.Acquire(t.Context(), r)
			return d.Reason != webhook.ReasonNoOwner
		}, 15*time.Second, 5*time.Millisecond)
		return d
	}
	d := decide(long)
	require.Equal(t, webhook.ReasonInFlight, d.Reason)
	require.InDelta(t, silentDeferral.Seconds(), d.Wait.Seconds(), 1, "the process may answer, or end, any time")
	require.InDelta(t, 36, a.blockedFor(long.Endpoint, long.Limits.LongestTimeout()).Seconds(), 3)
	d = decide(short)
	require.Equal(t, webhook.ReasonInFlight, d.Reason)
	require.InDelta(t, 7, a.blockedFor(short.Endpoint, short.Limits.LongestTimeout()).Seconds(), 3)

	require.NoError(t, listener.Close()) // it has ended
	require.Eventually(t, func() bool { return a.blockedFor(long.Endpoint, webhook.MaxTimeout) == 0 }, 15*time.Second, 5*time.Millisecond)
	d = decide(long)
	require.NotNil(t, d.Permit)
	d.Permit.Cancel()
}

// A process that is started again at its address takes the lanes of the process that was killed there.
func TestSameAddress(t *testing.T) {
	t.Parallel()
	s := newTable()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	s.processes["killed"] = webhook.Process{ID: "killed", Address: address}
	for i := range s.lanes {
		s.lanes[i], s.expires[i] = webhook.Lane{Owner: "killed", Epoch: 1}, time.Now().Add(time.Hour)
	}
	a := s.joinAt(t, "a", listener)
	settled(t, a)
	endpoint := endpointOf(t, s, a)
	require.Eventually(t, func() bool { return a.Acquire(t.Context(), request(endpoint, 1)).Permit != nil }, 10*time.Second, 20*time.Millisecond)
}

// A circuit stays open when its lane moves.
func TestCircuitsMove(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	r := request(endpointOf(t, s, a), 5)
	r.Limits.Breaker = webhook.CircuitBreaker{Enabled: true, MinRequests: 2, Cooldown: 5 * time.Minute}
	for range 2 {
		p := b.Acquire(t.Context(), r).Permit
		require.NotNil(t, p)
		p.Done(admission.Result{Latency: time.Millisecond, Number: 1, Reason: "http_503", Answered: true, BreakerFailure: true})
	}
	before, elsewhere, err := b.Health(t.Context(), r.Endpoint)
	require.NoError(t, err)
	require.True(t, elsewhere)
	require.Equal(t, webhook.CircuitOpen, before.Circuit)
	require.Nil(t, b.Acquire(t.Context(), r).Permit)
	a.Leave(t.Context())
	require.Empty(t, a.released, "it waits until its lanes are taken over")
	require.Eventually(t, func() bool { _, is := b.owner(r.Endpoint); return is }, 5*time.Second, 5*time.Millisecond)
	after := b.controller.Health(r.Endpoint)
	require.Equal(t, webhook.CircuitOpen, after.Circuit)
	require.Equal(t, before.Why, after.Why)
	require.WithinDuration(t, before.NextProbe, after.NextProbe, 100*time.Millisecond)
	require.WithinDuration(t, before.Since, after.Since, 100*time.Millisecond)
	require.Equal(t, webhook.ReasonCircuitOpen, b.Acquire(t.Context(), r).Reason)
	require.Equal(t, webhook.ReasonCircuitOpen, a.Acquire(t.Context(), r).Reason)
}

// An owner that does not answer is waited for, but for less long once that is known.
func TestHealthOfASilentOwner(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	api, endpoint := s.joinAPI(t, a, b), endpointOf(t, s, a)
	_, elsewhere, err := api.Health(t.Context(), endpoint)
	require.NoError(t, err)
	require.True(t, elsewhere)
	_, elsewhere, err = a.Health(t.Context(), endpoint)
	require.NoError(t, err)
	require.False(t, elsewhere, "it is the owner")

	here, there := net.Pipe() // nothing reads
	t.Cleanup(func() { _ = there.Close() })
	p, _ := api.owner(endpoint)
	for answers, patience := range map[bool]time.Duration{true: healthPatience, false: silentPatience} {
		silent := &peer{fleet: api, process: p.process, client: rpc.NewClient(here), answers: answers}
		t.Cleanup(silent.close)
		began := time.Now()
		_, err = silent.askHealth(t.Context(), endpoint)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(began), patience)
		require.Less(t, time.Since(began), patience+healthPatience/2)
	}

	_, elsewhere, err = (&Fleet{}).Health(t.Context(), endpoint)
	require.NoError(t, err)
	require.False(t, elsewhere, "each process counts for itself")
	_, elsewhere, err = (&Fleet{peers: map[string]*peer{"a": p}}).Health(t.Context(), endpoint)
	require.ErrorIs(t, err, errNoOwner)
	require.True(t, elsewhere)
}

// What is listed twice, or has ended meanwhile, is counted once, or not at all.
func TestUnderWayIsCountedOnce(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	number := webhook.LaneOf(endpoint)
	inFlight := func() int { return a.controller.Health(endpoint).InFlight }
	p := b.Acquire(t.Context(), request(endpoint, 3)).Permit
	require.NotNil(t, p)
	a.mu.Lock()
	epoch := a.lanes[number].epoch
	a.mu.Unlock()
	taken := map[int]int64{number: epoch}
	listed := transfers{b}.transferLanes(taken, "a")
	require.Empty(t, listed.InFlight, "a has granted it itself")
	earlier := LaneTransfer{InFlight: []InFlightRequest{{Number: 1000, Request: request(endpoint, 3), Timeout: time.Second}}}
	transfers{a}.importTransfer("b", taken, earlier)
	transfers{a}.importTransfer("b", taken, earlier)
	require.Equal(t, 2, inFlight())
	transfers{a}.importTransfer("b", map[int]int64{number: epoch - 1}, LaneTransfer{InFlight: []InFlightRequest{{Number: 1001, Request: request(endpoint, 3)}}})
	require.Equal(t, 2, inFlight(), "of another time as the owner")
	grants{a}.endGrant(grantID{"b", 1002}, number, nil)
	transfers{a}.importTransfer("b", taken, LaneTransfer{InFlight: []InFlightRequest{{Number: 1002, Request: request(endpoint, 3)}}})
	require.Equal(t, 2, inFlight(), "it has ended")

	grants{a}.endGrant(grantID{"b", 1003}, number, nil)
	late := a.controller.TryAcquire(request(endpoint, 3))
	require.NotNil(t, late)
	require.False(t, grants{a}.grant(grantID{"b", 1003}, endpoint, epoch, late), "its end has come first")
	late.Cancel()
	grants{a}.endGrant(grantID{"b", 1000}, number, nil)
	p.Cancel()
	require.Eventually(t, func() bool { return inFlight() == 0 }, 5*time.Second, 5*time.Millisecond)
}

// A permit of an owner before the one of now is void: the one of now does not know of it.
func TestPermitsOfAnEarlierOwnerAreVoid(t *testing.T) {
	t.Parallel()
	s, a, b := twoProcesses(t)
	endpoint := endpointOf(t, s, a)
	number := webhook.LaneOf(endpoint)
	b.mu.Lock()
	epoch := b.lanes[number].epoch
	b.mu.Unlock()
	require.NotNil(t, permits{b}.obtain(1, obtainedPermit{request: request(endpoint, 1), epoch: epoch}))
	require.Len(t, transfers{b}.transferLanes(map[int]int64{number: epoch + 1}, "c").InFlight, 1)
	require.Nil(t, permits{b}.obtain(2, obtainedPermit{request: request(endpoint, 1), epoch: epoch}))
}
