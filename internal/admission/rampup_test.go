package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A ramp-up is no steeper when many timers fire together after a stall: late deliveries are admitted no faster
// than it catches up, and none is lost.
func TestRampUpAfterAStall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ every, lasts time.Duration }{
		"none":      {time.Hour, 0},
		"short":     {3 * time.Second, 300 * time.Millisecond},
		"long":      {4 * time.Second, 900 * time.Millisecond},
		"very long": {10 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate, fails, back = 50, 60 * time.Second, 120 * time.Second
				s := newSim(t, guarded().Limits, func(at time.Duration) (time.Duration, Result) {
					if at >= fails && at < back {
						return time.Millisecond, refused(0)
					}
					return time.Millisecond, delivered(0)
				})
				s.late = 50 * time.Millisecond
				s.stalled = func(at time.Duration) time.Duration {
					if into := at % c.every; into < c.lasts {
						return at - into + c.lasts
					}
					return at
				}
				go s.stream(rate, 4*time.Minute)
				s.sleep(10 * time.Minute)
				s.end()
				require.Equal(t, len(s.all), s.delivered())
				closed := s.closed()
				require.LessOrEqual(t, s.densest(back, closed+rampTime), 2*rate)
				require.Greater(t, s.within(closed+rampTime/2, closed+rampTime), rate*3/4, "it rises")
				average, _ := s.returns()
				require.LessOrEqual(t, average, 3.0)
			})
		})
	}
}

// Reservations from before a 429 were for a rate that is not allowed after it.
func TestRampUpForWhatWasReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const asks, until = 60 * time.Second, 90 * time.Second
		asked := false
		s := newSim(t, Limits{Rate: 50}, func(at time.Duration) (time.Duration, Result) {
			if at >= asks && !asked {
				asked = true
				return time.Millisecond, Result{BreakerFailure: true, Answered: true, DeferFor: until - asks}
			}
			return time.Millisecond, delivered(0)
		})
		go s.stream(100, asks) // half of them have reservations until long after
		s.sleep(asks - time.Second)
		require.Greater(t, queueOf(s.controller, s.endpoint).reserved, 2000)
		s.sleep(10 * time.Minute)
		s.end()
		require.Equal(t, len(s.all), s.delivered())
		require.Zero(t, s.within(asks+time.Second, until))
		require.LessOrEqual(t, s.densest(until, until+5*time.Second), 20, "5/s, and 7/s a second after")
	})
}

// A ramp-up that begins long after it was expected is not steeper for the reservations made meanwhile: the
// receiver's name was not found, which says nothing about its health, until the name was back or a person reset
// the circuit.
func TestRampUpThatBeginsLate(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]bool{"by a probe": false, "by hand": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate, fails, gone, back = 20, 120 * time.Second, 150 * time.Second, 400 * time.Second
				s := newSim(t, guarded().Limits, func(at time.Duration) (time.Duration, Result) {
					switch {
					case at >= fails && at < gone:
						return 5 * time.Millisecond, refused(0)
					case at >= gone && at < back:
						return 5 * time.Millisecond, Result{}
					}
					return 5 * time.Millisecond, delivered(0)
				})
				go s.stream(rate, 9*time.Minute)
				s.sleep(back)
				if reset {
					s.controller.Reset(s.endpoint)
				}
				s.sleep(20 * time.Minute)
				s.end()
				require.Equal(t, len(s.all), s.delivered())
				closed := s.closed()
				require.GreaterOrEqual(t, closed, back)
				require.LessOrEqual(t, s.densest(closed, closed+10*time.Second), rate*3/5, "a ramp-up, not a step")
				require.LessOrEqual(t, s.densest(closed, closed+rampTime), 2*rate)
			})
		})
	}
}

// Deliveries that are late for their reservations during a ramp-up, all at once, are admitted one after another,
// whether an answer wakes the next or not, and new ones after them.
func TestLateDuringRampUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots  int
		takes  []time.Duration // those that are not named do not end
		second time.Duration
	}{
		"none ends": {slots: 10, second: 17 * time.Millisecond},
		"one slot":  {slots: 1, takes: []time.Duration{100 * time.Millisecond, 1, 1, 1, 1, 1}, second: 100 * time.Millisecond},
		"two slots": {slots: 2, takes: []time.Duration{20 * time.Millisecond, 1, 1, 1, 1, 1}, second: 17 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctl, req := New(Config{}), newRequest()
				req.Limits.MaxInFlight = c.slots
				results(t, ctl, req, 20*60, 50*time.Millisecond, delivered(time.Millisecond))
				admit(t, ctl, another(req)).Done(Result{BreakerFailure: true, Answered: true, DeferFor: 2 * time.Second})
				all := make([]Request, 30)
				var last time.Time
				for i := range all {
					all[i] = another(req)
					decision := ctl.Acquire(t.Context(), all[i])
					require.True(t, decision.Deferred())
					last = decision.Until
				}
				elapse(time.Until(last)) // from 2/s it has gone up to nearly 30/s
				begun := time.Now()
				went := make(chan time.Duration, len(all))
				enter := func(req Request) {
					permit := ctl.Acquire(t.Context(), req).Permit
					if permit == nil {
						return
					}
					i := len(went)
					went <- time.Since(begun)
					if i < len(c.takes) {
						elapse(c.takes[i])
						permit.Done(delivered(c.takes[i]))
						return
					}
					t.Cleanup(permit.Cancel)
				}
				for _, late := range all[len(all)-6:] {
					go enter(late)
					synctest.Wait()
				}
				wait := ctl.Forecast(req.Endpoint).Wait
				require.Greater(t, wait, 140*time.Millisecond, "a new delivery is admitted after the five that wait")
				elapse(130 * time.Millisecond) // where nothing is in the way, all have gone
				go enter(another(req))
				elapse(time.Second)
				const apart = 26667 * time.Microsecond // 37.5/s
				want := []time.Duration{0, c.second}
				for i := range 5 {
					want = append(want, max(c.second, apart)+time.Duration(i+1)*apart-burst)
				}
				require.Len(t, went, len(want))
				for i := range want {
					require.InDelta(t, want[i], <-went, float64(time.Millisecond), "number %d", i+1)
				}
			})
		})
	}
}

// However many are late, the rate is less than twice the earlier one until the ramp-up is over, and then a quarter
// above that of the ramp-up; and none has to wait for the one before for longer than it may.
func TestLeastInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base float64
		at   time.Duration
		want time.Duration
	}{
		{80, -time.Minute, time.Second / 150},
		{80, 0, time.Second / 150},
		{80, 59 * time.Second, time.Second / 150},
		{80, 75 * time.Second, time.Second / 300},
		{80, 90 * time.Second, time.Second / 600},
		{3, 0, 177778 * time.Microsecond},
		{1, 0, shortPatience},
		{0, 0, shortPatience},
	} {
		r := rampUp{active: true, over: rampTime, base: c.base}
		require.InDelta(t, c.want, r.leastInterval(c.at), float64(time.Microsecond), "%v", c)
	}
}
