package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An endpoint with a thousand that wait does not shut out one with a single one, however
// long answers take; and the places are used meanwhile.
func TestNobodyIsShutOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		places  int
		latency time.Duration
		within  time.Duration
	}{
		"one, quick":  {1, 20 * time.Millisecond, 3 * time.Second},
		"one, slow":   {1, 2 * time.Second, 30 * time.Second},
		"some, quick": {5, 50 * time.Millisecond, 3 * time.Second},
		"some, slow":  {5, 2 * time.Second, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sims := newSims(t, 2, Config{MaxInFlightPerHost: c.places}, Limits{}, constant(c.latency))
				for range 1000 {
					sims[0].send()
				}
				elapse(10 * time.Second)
				for n := 1; n <= 5; n++ {
					begun := time.Now()
					sims[1].send()
					for sims[1].delivered() < n {
						require.Less(t, time.Since(begun), c.within)
						elapse(50 * time.Millisecond)
					}
				}
				_, most := sims[1].returns()
				require.LessOrEqual(t, most, 6)
				for _, s := range sims {
					s.end()
				}
			})
		})
	}
}

// A newcomer does not take a place that is free for a moment from those who have been told
// to come, at whichever endpoint of the host.
func TestNewcomersComeBehind(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.gate(func(c *Config) { c.MaxInFlightPerHost = 1 })
	for range 40 { // it is known to take 2 s
		permit := admit(t, ctl, at("a.test:443"))
		clock.advance(2 * time.Second)
		permit.Done(delivered(2 * time.Second))
	}
	busy := admit(t, ctl, at("a.test:443"))
	var told []Request
	var turns []time.Time
	for range 5 {
		req := at("a.test:443")
		decision := ctl.Acquire(t.Context(), req)
		require.Equal(t, Decision{Until: decision.Until, Reason: ReasonHost}, decision)
		require.True(t, decision.Deferred())
		told, turns = append(told, req), append(turns, decision.Until)
	}
	for i := 1; i < len(turns); i++ {
		require.InDelta(t, 2, turns[i].Sub(turns[i-1]).Seconds(), 0.2, "one after the other")
	}
	clock.advance(2 * time.Second)
	busy.Done(delivered(2 * time.Second))
	newcomer := at("a.test:443")
	decision := ctl.Acquire(t.Context(), newcomer)
	permit := decision.Permit
	require.Nil(t, permit, "the place is free, but not for it")
	require.False(t, decision.Until.Before(turns[4]))
	for i, req := range told {
		clock.Time = turns[i]
		permit := admit(t, ctl, req)
		clock.advance(1900 * time.Millisecond)
		permit.Done(delivered(1900 * time.Millisecond))
	}
	clock.Time = decision.Until
	admit(t, ctl, newcomer).Cancel()

	// Once all wait, an endpoint's turns are a round apart.
	busy = admit(t, ctl, at("a.test:443"))
	for range 3 {
		for i, req := range told {
			decision := ctl.Acquire(t.Context(), another(req))
			require.True(t, decision.Deferred())
			if !turns[i].Before(clock.Time) {
				require.GreaterOrEqual(t, decision.Until.Sub(turns[i]), 8*time.Second)
			}
			turns[i] = decision.Until
		}
	}
	busy.Cancel()
}

// Who is a rival: only an endpoint that would take a place soon.
func TestWantsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*endpoint)
		want   bool
	}{
		"soon":            {func(*endpoint) {}, true},
		"nobody":          {func(e *endpoint) { e.line.expire(never) }, false},
		"far off":         {func(e *endpoint) { e.line.slots[0].at += time.Minute }, false},
		"too late":        {func(e *endpoint) { e.line.slots[0].at = -time.Minute }, false},
		"at its own cap":  {func(e *endpoint) { e.inFlight = e.limits.MaxInFlight }, false},
		"barred":          {func(e *endpoint) { e.barredUntil = time.Hour }, false},
		"open":            {func(e *endpoint) { e.circuit.state, e.circuit.until = CircuitOpen, time.Hour }, false},
		"open, probe due": {func(e *endpoint) { e.circuit.state = CircuitOpen }, true},
		"being probed":    {func(e *endpoint) { e.circuit.state, e.circuit.probe = CircuitHalfOpen, &Permit{} }, false},
	} {
		ctl := newClock().gate(func(c *Config) { c.MaxInFlightPerHost = 1 })
		busy := admit(t, ctl, at("a.test:443"))
		req := at("a.test:443")
		_ = ctl.Acquire(canceled(), req).Permit
		decision := ctl.Acquire(canceled(), req)
		require.True(t, decision.Deferred())
		e := ctl.shard(req.Endpoint).endpoints[req.Endpoint]
		e.line.add(time.Second, req.Delivery)
		c.change(e)
		require.Equal(t, c.want, e.wantsPlace(0), name)
		h := busy.host
		h.contend(e)
		h.review(0)
		require.Equal(t, c.want, e.rival > 0, name)
	}
}

// A place is kept for the endpoint that has missed most turns, at a host where places
// become free seldom. Others that miss one come again at different times.
func TestKeptForWhoMissed(t *testing.T) {
	t.Parallel()
	ctl := newClock().gate(func(c *Config) {
		c.MaxInFlightPerHost = 1
		c.Random = func() float64 { return 0.5 }
	})
	h := admit(t, ctl, at("a.test:443")).host
	one, other := &endpoint{}, &endpoint{}
	h.gap = slowTurnover
	for range 5 {
		h.miss(0, time.Second, one)
	}
	require.Nil(t, h.kept, "places become free often enough")
	h.gap, one.missed = 2*time.Second, 0
	require.Equal(t, h.nextFree(0), h.turnOfMissed(0, one), "nobody else is waited for")
	for _, step := range []struct{ misses, kept *endpoint }{
		{one, nil}, {one, one}, {other, one}, {other, one}, {other, other}, {one, other}, {one, one},
	} {
		h.miss(0, time.Second, step.misses)
		require.Same(t, step.kept, h.kept)
		if h.kept == step.misses {
			require.Equal(t, time.Second+lateness, h.keptUntil)
		}
	}
	h.contend(one)
	h.contend(other)
	const round = 2 * 2 * time.Second
	require.Equal(t, h.nextFree(0)+round/2, h.turnOfMissed(0, other))
	later := h.keptUntil + 1
	require.Equal(t, h.nextFree(later), h.turnOfMissed(later, other))
	h.miss(later, later, other)
	require.Same(t, other, h.kept, "one is too late")
}

// What was kept for an endpoint is given to who waits, as soon as it is known that the
// endpoint will not come.
func TestKeptPlaceIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(ctl *Controller, kept, far Request){
		"it leads elsewhere":     func(ctl *Controller, kept, _ Request) { kept.Host = "b.test:443"; ctl.Acquire(canceled(), kept) },
		"it is seen not to wait": func(ctl *Controller, _, far Request) { ctl.Acquire(canceled(), far) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl := New(Config{MaxInFlightPerHost: 1})
				kept := at("a.test:443")
				admit(t, ctl, kept).Cancel()
				far := at("a.test:443") // its rate lets nobody go for long
				far.Limits.Rate = 0.01
				admit(t, ctl, far).Cancel()
				busy := admit(t, ctl, at("a.test:443"))
				h := busy.host
				e := ctl.shard(kept.Endpoint).endpoints[kept.Endpoint]
				h.contend(e)
				h.kept, h.keptUntil = e, never
				begun := time.Now()
				admitted := make(chan *Permit)
				go func() {
					permit := ctl.Acquire(t.Context(), at("a.test:443")).Permit
					admitted <- permit
				}()
				synctest.Wait()
				h.contend(e) // it was not seen to wait
				h.kept, h.keptUntil = e, never
				busy.Cancel()
				require.Equal(t, 1, ctl.Totals().Waiting)
				giveUp(ctl, kept, another(far))
				permit := <-admitted
				require.NotNil(t, permit)
				require.Zero(t, time.Since(begun))
				permit.Cancel()
			})
		})
	}
}

// A reservation for which nobody comes keeps no place from others once it has passed, and
// one that is far off because of its endpoint's rate keeps none at all.
func TestPlacesAreLeftToThoseWhoCome(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.gate(func(c *Config) { c.MaxInFlightPerHost = 2 })
	busy := []*Permit{admit(t, ctl, at("a.test:443")), admit(t, ctl, at("a.test:443"))}
	for range 1000 {
		decision := ctl.Acquire(canceled(), at("a.test:443"))
		require.True(t, decision.Deferred())
	}
	for _, p := range busy {
		p.Done(delivered(time.Millisecond))
	}
	clock.advance(time.Hour)
	h := ctl.hosts["a.test:443"]
	require.NotEmpty(t, h.rivals)
	admit(t, ctl, at("a.test:443")).Cancel()
	require.Empty(t, h.rivals)
}

// A place of the host is kept for an endpoint that found none, and not for one whose own
// places were taken.
func TestKeptForWhomTheHostHadNoPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, others int // the endpoint's places; requests of another to its host
		kept        bool
	}{
		"own places taken":   {own: 1, others: 0, kept: false},
		"own and the host's": {own: 1, others: 1, kept: false},
		"the host's":         {own: 2, others: 1, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctl := New(Config{MaxInFlightPerHost: 2})
			req := at("receiver.test:443")
			req.Limits.MaxInFlight = c.own
			e := admit(t, ctl, req).endpoint
			for range c.others {
				admit(t, ctl, at("receiver.test:443"))
			}
			e.shard.mu.Lock()
			defer e.shard.mu.Unlock()
			e.host.gap, e.missed = time.Second, 5
			e.bookAgain(ctl.now(), &req)
			require.Equal(t, c.kept, e.host.kept == e)
		})
	}
}
