package admission

import (
	"slices"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// waitMargin is how much later than its reservation a waiting delivery may be admitted: a slot
// may become free a little later than predicted.
const waitMargin = 100 * time.Millisecond

// waiter is a delivery that waits inside Acquire. It has a reservation.
type waiter struct {
	delivery webhook.DeliveryID
	retries  int
	at       time.Duration // its reservation
	deadline time.Duration
	returned bool          // it had the reservation when it came
	ready    chan struct{} // closed when there is a permit, or when it has to ask again
	permit   *Permit
}

// wait lets a delivery wait for its reservation, unless it is admitted at once.
func (e *endpoint) wait(now, at time.Duration, req *Request, returned bool) (Decision, *waiter) {
	w := &waiter{
		delivery: req.Delivery, retries: req.Retries, at: at, deadline: max(now+e.patience(), at+waitMargin), returned: returned,
		ready: make(chan struct{}),
	}
	i := len(e.waiters)
	for i > 0 && e.waiters[i-1].at > at {
		i--
	}
	e.waiters = slices.Insert(e.waiters, i, w)
	e.reservations.of(w.delivery).waiting = true
	e.admitWaiters(now)
	if w.permit != nil {
		return Decision{Permit: w.permit}, nil
	}
	e.admitLater(now)
	e.inside++
	e.env.inside.Add(1)
	return Decision{}, w
}

// leave takes a waiter and its reservation away.
func (e *endpoint) leave(w *waiter) {
	if i := slices.Index(e.waiters, w); i >= 0 {
		e.waiters = slices.Delete(e.waiters, i, i+1)
		e.reservations.remove(w.delivery)
	}
	if len(e.waiters) == 0 {
		e.waiters = nil
	}
}

// admitWaiters admits waiting deliveries, in their order, as long as one can be.
func (e *endpoint) admitWaiters(now time.Duration) {
	if e.host == nil {
		for admitted := true; admitted && e.ready(now); {
			admitted = e.admitFirst(now)
		}
		return
	}
	if e.hostEntry.queued || e.ready(now) {
		e.host.join(&e.hostEntry)
	}
	e.host.admitWaiters(now)
}

// admitFirst implements contender.
func (e *endpoint) admitFirst(now time.Duration) bool {
	w := e.waiters[0]
	at := min(w.at, now)
	if e.breaker.state != webhook.CircuitClosed {
		at = now
	}
	e.leave(w)
	w.permit = e.admit(now, at, w.retries)
	close(w.ready)
	e.admitLater(now)
	return w.permit != nil
}

// admitLater sets a timer for deliveries that only a ramp-up keeps waiting, or others that were late.
func (e *endpoint) admitLater(now time.Duration) {
	if e.timerSet || len(e.waiters) == 0 || e.rate.allowsLate(now) {
		return
	}
	e.timerSet = true
	time.AfterFunc(e.rate.lateFrom(now)-now, func() {
		e.lock.Lock()
		defer e.unlock()
		now := e.env.now()
		e.timerSet = false
		e.admitWaiters(now)
		e.admitLater(now)
	})
}
