package admission

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// modeled is a delivery in the model.
type modeled struct {
	id      webhook.DeliveryID
	host    string // of the request
	asked   int    // its number in the order of asking
	until   time.Time
	back    bool // it has asked before
	returns int  // in time; one that comes too early or too late has to come again
	leave   context.CancelFunc
	answer  chan answer
}

type answer struct {
	Decision
	at time.Time
}

// model is an endpoint and its deliveries, each in one of four lists.
type model struct {
	*rapid.T
	ctx        context.Context
	controller *Controller
	request    Request
	n          uint16
	asked      int
	inside     []*modeled // waiting in Acquire, in the order of asking
	deferred   map[webhook.DeliveryID]*modeled
	held       []*modeled
	sending    map[*Permit]*modeled
	admitted   []time.Time
	counts     []int // of returns, of deferred deliveries that have been admitted
}

// enter lets a delivery ask, and sorts the answers.
func (m *model) enter(d *modeled, released bool) {
	ctx, cancel := context.WithCancel(m.ctx)
	d.leave, d.answer = cancel, make(chan answer, 1)
	m.asked++
	d.asked = m.asked
	req := m.request
	req.Delivery, req.Released, d.host = d.id, released, req.Host
	m.inside = append(m.inside, d)
	go func() {
		decision := m.controller.Acquire(ctx, req)
		d.answer <- answer{decision, time.Now()}
	}()
	m.settle()
}

// settle waits until all goroutines are blocked, and puts each delivery that has an answer into its list.
func (m *model) settle() {
	synctest.Wait()
	var admitted []answer
	m.inside = slices.DeleteFunc(m.inside, func(d *modeled) bool {
		select {
		case a := <-d.answer:
			d.leave()
			switch kindOf(a.Decision) {
			case isAdmitted:
				admitted = append(admitted, a)
				m.sending[a.Permit] = d
				if d.returns > 0 {
					m.counts = append(m.counts, d.returns)
				}
			case isDeferred:
				if !a.Until.Equal(d.until) { // else it came early, in vain
					require.GreaterOrEqual(m, a.Until.Sub(a.at), minDeferral, "less is not worth a timer")
				}
				d.until = a.Until
				m.deferred[d.id] = d
			case isHeld:
				m.held = append(m.held, d)
			default:
				require.Fail(m, "no verdict")
			}
			return true
		default:
			return false
		}
	})
	slices.SortFunc(admitted, func(a, b answer) int { return a.at.Compare(b.at) })
	for _, a := range admitted {
		m.admitted = append(m.admitted, a.at)
		one := m.sending[a.Permit]
		for _, d := range m.inside {
			require.False(m, !one.back && !d.back && d.asked < one.asked, "a new delivery was overtaken")
		}
	}
}

func (m *model) pick(from []*modeled) *modeled {
	if len(from) == 0 {
		m.Skip("there is none")
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(m.T, "which")]
}

func (m *model) due(early time.Duration) (due []*modeled) {
	for _, d := range m.deferred {
		if !time.Now().Add(early).Before(d.until) {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *modeled) int { return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.asked, b.asked)) })
	return due
}

// comeBack lets a deferred delivery ask again.
func (m *model) comeBack(d *modeled) {
	delete(m.deferred, d.id)
	d.back = true
	if late := time.Since(d.until); late >= 0 && late <= lateness {
		d.returns++
	}
	m.enter(d, false)
}

// pass lets time go by, in which deferred deliveries come back in time.
func (m *model) pass(by time.Duration) { passTime(by, m) }

func passTime(by time.Duration, models ...*model) {
	end := time.Now().Add(by)
	for {
		next := end
		for _, m := range models {
			for _, d := range m.deferred {
				if d.until.Before(next) {
					next = d.until
				}
			}
		}
		elapse(max(time.Until(next), 0))
		for _, m := range models {
			m.settle()
		}
		for _, m := range models {
			for _, d := range m.due(0) {
				m.comeBack(d)
			}
		}
		if !next.Before(end) {
			return
		}
	}
}

// arrive lets a new delivery ask, up to so many.
func (m *model) arrive(most uint16) {
	if m.n == most {
		m.Skip("enough")
	}
	m.n++
	m.enter(&modeled{id: webhook.DeliveryIDOf(webhook.EventID{byte(m.n), byte(m.n >> 8)}, m.request.Endpoint)}, false)
}

// try asks for a new delivery that does not wait. It overtakes none.
func (m *model) try() {
	m.asked++
	d := &modeled{id: webhook.DeliveryIDOf(webhook.NewEventID(), m.request.Endpoint), asked: m.asked}
	req := m.request
	req.Delivery = d.id
	reserved := m.controller.Totals()
	permit := m.controller.TryAcquire(req)
	if permit == nil {
		require.Equal(m, reserved, m.controller.Totals(), "nothing is reserved")
		return
	}
	require.Empty(m, m.inside, "a delivery waits")
	m.sending[permit] = d
	m.admitted = append(m.admitted, time.Now())
}

// rest lets a deferred delivery end.
func (m *model) rest() {
	d := m.pick(m.due(time.Hour))
	delete(m.deferred, d.id)
	m.controller.Forget(m.request.Endpoint, d.id)
	m.settle() // its time may be that of another
}

// goAway ends the context of a waiting delivery.
func (m *model) goAway() {
	d := m.pick(m.inside)
	d.leave()
	synctest.Wait()
	m.settle()
	require.NotContains(m, m.inside, d)
}

// end ends a request.
func (m *model) end(result Result) {
	permits := m.permits()
	if len(permits) == 0 {
		m.Skip("nothing is in flight")
	}
	p := permits[rapid.IntRange(0, len(permits)-1).Draw(m.T, "which")]
	delete(m.sending, p)
	if rapid.IntRange(0, 9).Draw(m.T, "sent") == 0 {
		p.Cancel()
	} else {
		p.Done(result)
	}
	p.Cancel() // is ignored
	m.settle()
}

func (m *model) permits() []*Permit {
	permits := slices.Collect(maps.Keys(m.sending))
	slices.SortFunc(permits, func(a, b *Permit) int { return cmp.Compare(m.sending[a].asked, m.sending[b].asked) })
	return permits
}

// check checks the invariants.
func (m *model) check(rate float64, slots int) {
	require.LessOrEqual(m, len(m.sending), slots, "more in flight than allowed")
	h := m.controller.Health(m.request.Endpoint)
	require.Equal(m, len(m.sending), h.InFlight)
	waiting := queueOf(m.controller, m.request.Endpoint).waiting
	require.Equal(m, len(m.inside), waiting)
	require.LessOrEqual(m, waiting, quickWaiters+maxWaiters)

	// A late delivery, or one that waited for a slot, uses a reservation that is past.
	waits := shortPatience
	if intervalOf(rate) <= quickInterval {
		waits = longPatience
	}
	slack := (lateness + waits + waitMargin + burst).Seconds()
	level := 0.0 // of a bucket that leaks at the rate
	for i, at := range m.admitted {
		if i > 0 {
			level = max(0, level-rate*at.Sub(m.admitted[i-1]).Seconds())
		}
		level++
		require.LessOrEqual(m, level, rate*slack+2, "faster than the rate")
	}

	all := m.controller.Totals()
	require.Equal(m, int64(all.Waiting+all.Reserved), m.controller.reserved.total.Load(), "what is given back is given back")
	s := m.controller.shard(m.request.Endpoint)
	s.lock.Lock()
	defer s.lock.Unlock()
	e := s.endpoints[m.request.Endpoint]
	require.NotNil(m, e)
	require.Len(m, e.reservations.when, len(e.reservations.all), "one each")
	for i := 1; i < len(e.reservations.all); i++ {
		require.Less(m, e.reservations.all[i-1].at, e.reservations.all[i].at, "two at the same time")
	}
	require.True(m, slices.IsSortedFunc(e.waiters, func(a, b *waiter) int { return cmp.Compare(a.at, b.at) }))
	for _, sl := range e.reservations.all {
		_, away := m.deferred[sl.delivery]
		gone := sl.at < s.env.now()
		require.True(m, away || sl.waiting || gone, "a reservation without a delivery")
	}
	require.False(m, e.overdue(s.env.now()), "a delivery waits although it could be admitted")
	e.checkWaiters(m)
}

// checkWaiters checks that the reservations say which deliveries wait.
func (e *endpoint) checkWaiters(t require.TestingT) {
	var here, marked []webhook.DeliveryID
	for _, w := range e.waiters {
		here = append(here, w.delivery)
	}
	for _, sl := range e.reservations.all {
		if sl.waiting {
			marked = append(marked, sl.delivery)
		}
	}
	require.ElementsMatch(t, here, marked)
}

// The invariants of admission, whatever happens in whatever order: never more in flight than allowed, never
// faster than the rate, distinct reservations, unused ones given back, and at last all deliveries have been
// admitted.
func TestModel(t *testing.T) {
	t.Parallel()
	returned, times := 0, 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			slots := rapid.IntRange(1, 4).Draw(t, "slots")
			rate := rapid.SampledFrom([]float64{0.5, 3, 20, 1000}).Draw(t, "rate")
			m := &model{
				T: t, controller: New(Config{}), request: newRequest(),
				deferred: make(map[webhook.DeliveryID]*modeled), sending: make(map[*Permit]*modeled),
			}
			m.request.Limits = Limits{MaxInFlight: slots, Rate: rate}
			var stop context.CancelFunc
			m.ctx, stop = context.WithCancel(context.Background())
			defer synctest.Wait()
			defer stop()
			m.arrive(200)
			t.Repeat(map[string]func(*rapid.T){
				"ask": func(*rapid.T) { m.arrive(200) },
				"ask together": func(t *rapid.T) {
					for range rapid.IntRange(1, 80).Draw(t, "how many") {
						m.arrive(200)
					}
				},
				"try": func(t *rapid.T) {
					m.T = t
					m.try()
				},
				"come back late": func(t *rapid.T) {
					due := m.due(lateness)
					m.T = t
					d := m.pick(due)
					elapse(time.Until(d.until) + time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms"))*time.Millisecond)
					m.settle()
					m.comeBack(d)
				},
				"come back early": func(t *rapid.T) {
					m.T = t
					m.comeBack(m.pick(m.due(time.Hour)))
				},
				"rest": func(t *rapid.T) {
					m.T = t
					m.rest()
				},
				"leave": func(t *rapid.T) {
					m.T = t
					m.goAway()
				},
				"end": func(t *rapid.T) {
					m.T = t
					m.end(delivered(0))
				},
				"ask for a pause": func(t *rapid.T) {
					m.T = t
					m.end(Result{BreakerFailure: true, Answered: true, DeferFor: time.Duration(rapid.IntRange(1, 5).Draw(t, "s")) * time.Second})
				},
				"time": func(t *rapid.T) {
					m.T = t
					m.pass(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
				},
				"": func(t *rapid.T) {
					m.T = t
					m.check(rate, slots)
				},
			})
			m.T = t
			m.drain(t, rate, slots)
			require.Zero(t, m.controller.inside.Load())
			require.Zero(t, m.controller.reserved.total.Load())
			for _, n := range m.counts {
				returned++
				times += n
			}
		})
	})
	require.Positive(t, returned)
	require.LessOrEqual(t, float64(times)/float64(returned), 2.0, "deferred ones come back more than twice on average")
}

// drain lets everything come to its end: requests take 100 ms from here on.
func (m *model) drain(t *rapid.T, rate float64, slots int) {
	for n := 0; len(m.inside)+len(m.deferred)+len(m.held)+len(m.sending) > 0; n++ {
		require.Less(t, n, 30_000, "a delivery is never admitted")
		for _, p := range m.permits() {
			delete(m.sending, p)
			p.Done(delivered(100 * time.Millisecond))
		}
		m.settle()
		for range min(roomOf(m.controller, m.request.Endpoint), len(m.held)) {
			d := m.held[0]
			m.held = m.held[1:]
			m.enter(d, true)
		}
		m.pass(200 * time.Millisecond)
		if n%50 == 0 {
			m.check(rate, slots)
		}
	}
}
