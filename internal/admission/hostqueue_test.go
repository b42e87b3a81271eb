package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// An endpoint with a thousand deliveries does not shut out one with a single one, however long answers
// take.
func TestNoEndpointIsShutOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots   int
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
				sims := newSims(t, 2, Config{MaxInFlightPerHost: c.slots}, Limits{}, constant(c.latency))
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

// A new delivery does not take a slot that is free for a moment from deferred ones, of whichever endpoint of
// the host.
func TestNewDeliveriesComeBehind(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxInFlightPerHost = 1 })
	for range 40 { // it is known to take 2 s
		permit := admit(t, ctl, at("a.test:443"))
		clock.advance(2 * time.Second)
		permit.Done(delivered(2 * time.Second))
	}
	busy := admit(t, ctl, at("a.test:443"))
	var deferred []Request
	var times []time.Time
	for range 5 {
		req := at("a.test:443")
		decision := ctl.Acquire(t.Context(), req)
		require.Equal(t, Decision{Until: decision.Until, Wait: decision.Until.Sub(clock.now()), Reason: webhook.ReasonHost}, decision)
		require.True(t, decision.Deferred())
		deferred, times = append(deferred, req), append(times, decision.Until)
	}
	for i := 1; i < len(times); i++ {
		require.InDelta(t, 2, times[i].Sub(times[i-1]).Seconds(), 0.2, "one after the other")
	}
	clock.advance(2 * time.Second)
	busy.Done(delivered(2 * time.Second))
	later := at("a.test:443")
	decision := ctl.Acquire(t.Context(), later)
	permit := decision.Permit
	require.Nil(t, permit, "the slot is free, but not for it")
	require.False(t, decision.Until.Before(times[4]))
	for i, req := range deferred {
		clock.set(times[i])
		permit := admit(t, ctl, req)
		clock.advance(1900 * time.Millisecond)
		permit.Done(delivered(1900 * time.Millisecond))
	}
	clock.set(decision.Until)
	admit(t, ctl, later).Cancel()

	// Once all wait, the reservations of one endpoint are a round apart.
	busy = admit(t, ctl, at("a.test:443"))
	for range 3 {
		for i, req := range deferred {
			decision := ctl.Acquire(t.Context(), another(req))
			require.True(t, decision.Deferred())
			if !times[i].Before(clock.now()) {
				require.GreaterOrEqual(t, decision.Until.Sub(times[i]), 8*time.Second)
			}
			times[i] = decision.Until
		}
	}
	busy.Cancel()
}

// An endpoint keeps its place in the queue of its host only while it would take a slot soon.
func TestNeedsSlot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*endpoint)
		want   bool
	}{
		"soon":            {func(*endpoint) {}, true},
		"none":            {func(e *endpoint) { e.reservations.expire(never) }, false},
		"far off":         {func(e *endpoint) { e.reservations.all[0].at += time.Minute }, false},
		"too late":        {func(e *endpoint) { e.reservations.all[0].at = -time.Minute }, false},
		"at its own cap":  {func(e *endpoint) { e.slots.inFlight = make([]*activeRequest, e.slots.limit) }, false},
		"blocked":         {func(e *endpoint) { e.blockedUntil = time.Hour }, false},
		"open":            {func(e *endpoint) { e.breaker.state, e.breaker.until = webhook.CircuitOpen, time.Hour }, false},
		"open, probe due": {func(e *endpoint) { e.breaker.state = webhook.CircuitOpen }, true},
		"being probed":    {func(e *endpoint) { e.breaker.state, e.breaker.probe = webhook.CircuitHalfOpen, &activeRequest{} }, false},
	} {
		ctl := newClock().controller(func(c *Config) { c.MaxInFlightPerHost = 1 })
		h := admit(t, ctl, at("a.test:443")).host
		req := at("a.test:443")
		require.True(t, ctl.Acquire(canceled(), req).Deferred())
		e := ctl.shard(req.Endpoint).endpoints[req.Endpoint]
		e.reservations.add(time.Second, req.Delivery)
		c.change(e)
		require.Equal(t, c.want, e.needsSlot(0, minDeferral), name)
		h.join(&e.hostEntry)
		h.prunedAt = -pruneEvery
		h.prune(0)
		require.Equal(t, c.want, e.hostEntry.queued, name)
	}
}

// contending is an endpoint as its host sees it.
type contending struct {
	waiting  int
	due      time.Duration // of its next deferred delivery; never: there is none
	admitted func(*contending)
	looked   *int // how often the host looked at one; may be nil
}

func (c *contending) look() {
	if c.looked != nil {
		*c.looked++
	}
}

func (c *contending) waits() bool {
	c.look()
	return c.waiting > 0
}

func (c *contending) ready(time.Duration) bool {
	c.look()
	return c.waiting > 0
}

func (c *contending) needsSlot(now, within time.Duration) bool {
	c.look()
	return c.waiting > 0 || now-lateness <= c.due && c.due <= now+within
}

func (c *contending) admitFirst(time.Duration) bool {
	c.waiting--
	c.admitted(c)
	return true
}

// setupHost makes a host with so many free slots and endpoints in its queue, and returns in which order
// they are admitted.
func setupHost(free int, interval time.Duration, all ...*contending) (h *host, entries []*hostEntry, order *[]*contending) {
	h, order = &host{limit: 10, inFlight: 10 - free, interval: interval}, new([]*contending)
	for _, c := range all {
		t := &hostEntry{contender: c}
		c.admitted = func(c *contending) {
			*order = append(*order, c)
			h.add(0, t)
		}
		h.join(t)
		entries = append(entries, t)
	}
	return h, entries, order
}

// A host's slots go to its endpoints round-robin, as many as are free.
func TestHostTurns(t *testing.T) {
	t.Parallel()
	a, b, c := &contending{waiting: 3, due: never}, &contending{waiting: 1, due: never}, &contending{waiting: 2, due: never}
	h, entries, order := setupHost(5, time.Second, a, b, c)
	h.admitWaiters(0)
	require.Equal(t, []*contending{a, b, c, a, c}, *order)
	require.True(t, h.full())
	require.False(t, h.add(0, entries[0]), "all slots are taken")
	require.Equal(t, 10, h.inFlight)
	h.remove(0, time.Second)
	require.Len(t, *order, 6)
	require.Empty(t, h.queue, "none waits any more")
}

// Where slots become free rarely, the last one is kept for the endpoint whose deliveries came in
// vain twice, while another is about to come.
func TestHostKeepsASlot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		free     int
		interval time.Duration
		missed   int
		due      time.Duration
		admitted int // of the other endpoint's two that wait
	}{
		"is about to come":   {1, time.Second, 2, time.Second, 0},
		"is late":            {1, time.Second, 2, -lateness / 2, 0},
		"is too late":        {1, time.Second, 2, -2 * lateness, 1},
		"comes much later":   {1, time.Second, 2, time.Minute, 1},
		"missed once":        {1, time.Second, 1, time.Second, 1},
		"another slot":       {2, time.Second, 2, time.Second, 1},
		"slots become free":  {1, slowInterval, 2, time.Second, 1},
		"there is none":      {0, time.Second, 2, time.Second, 0},
		"it is gone for now": {1, time.Second, 2, never, 1},
	} {
		away, here := &contending{due: c.due}, &contending{waiting: 2, due: never}
		h, entries, order := setupHost(c.free, c.interval, away, here)
		entries[0].missed = c.missed
		h.admitWaiters(0)
		require.Len(t, *order, c.admitted, name)
		if c.free == 0 || c.admitted >= c.free {
			continue
		}
		away.waiting = 1
		h.join(entries[0])
		h.admitWaiters(0)
		require.Same(t, away, (*order)[c.admitted], "%s: it came", name)
		require.Zero(t, entries[0].missed)
	}
}

// A host's work for one request does not grow with the number of endpoints in its queue.
func TestHostWorkIsBounded(t *testing.T) {
	t.Parallel()
	const requests = 1000
	work := func(endpoints int) (looked int) {
		all := make([]*contending, endpoints)
		for i := range all {
			all[i] = &contending{due: 2 * time.Second, looked: &looked}
		}
		here := all[endpoints/2]
		here.waiting = requests
		h, entries, order := setupHost(0, time.Second, all...)
		for _, entry := range entries {
			entry.missed = deferralsBeforeKeep // none is about to come: the search for the one to keep a slot for finds nothing
		}
		looked = 0
		for i := range requests {
			now := time.Duration(i) * 100 * time.Microsecond
			h.prune(now)
			h.remove(now, time.Second)
			h.interval = time.Second // slots become free rarely
		}
		require.Len(t, *order, requests)
		require.Len(t, h.queue, endpoints)
		return looked
	}
	require.Less(t, work(5000), 2*work(50))
}

// A reservation for which no delivery comes keeps no slot from others once it has passed.
func TestUnusedReservationsKeepNoSlot(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ctl := clock.controller(func(c *Config) { c.MaxInFlightPerHost = 2 })
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
	require.NotEmpty(t, h.queue)
	admit(t, ctl, at("a.test:443")).Cancel()
	require.Empty(t, h.queue)
}

// A delivery came in vain because of its host if that had no slot, and not if its endpoint had
// none.
func TestMissedBecauseOfTheHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, others int // the endpoint's slots; requests of another to its host
		missed      int
	}{
		"no slot of its own":      {own: 1, others: 0, missed: 0},
		"none of its own, either": {own: 1, others: 1, missed: 0},
		"none of the host":        {own: 2, others: 1, missed: 1},
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
			e.lock.Lock()
			defer e.lock.Unlock()
			e.reserveAgain(ctl.now(), &req)
			require.Equal(t, c.missed, e.hostEntry.missed)
		})
	}
}
