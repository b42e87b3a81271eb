package admission

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// sim is a receiver and deliveries to it in a synctest bubble: each is a goroutine that does what a workflow does,
// and one more releases held ones, oldest first, as many as can get a reservation.
type sim struct {
	t          *testing.T
	controller *Controller
	endpoint   webhook.EndpointID
	host       string
	limits     Limits
	begun      time.Time
	// serve says how long a request takes that arrives at a time since the beginning, and what becomes of it.
	serve func(at time.Duration) (time.Duration, Result)
	late  time.Duration // timers are late by up to this
	// stalled returns the end of the stall in which a time lies; the time itself if there is none then. Nil: there are
	// no stalls.
	stalled func(at time.Duration) time.Duration

	mu       sync.Mutex
	random   *rand.Rand
	held     []*simDelivery // oldest first
	all      []*simDelivery
	arrivals []time.Duration // at the receiver
	inFlight int
	most     int // in flight
	reserved int // the most ever
	changes  []webhook.CircuitChange
	wait     sync.WaitGroup
	ended    bool
	stop     context.CancelFunc
	ctx      context.Context
}

type simDelivery struct {
	id       webhook.DeliveryID
	asked    time.Duration
	done     time.Duration // delivered
	returns  int           // deferred and come back
	holds    int
	attempts int
	release  chan struct{}
}

func newSim(t *testing.T, limits Limits, serve func(time.Duration) (time.Duration, Result)) *sim {
	t.Helper()
	return newSims(t, 1, Config{}, limits, serve)[0]
}

// newSims are some with one controller and one host.
func newSims(t *testing.T, n int, config Config, limits Limits, serve func(time.Duration) (time.Duration, Result)) []*sim {
	t.Helper()
	sims := make([]*sim, n)
	config.OnCircuitChange = func(c webhook.CircuitChange) {
		s := sims[slices.IndexFunc(sims, func(s *sim) bool { return s.endpoint == c.EndpointID })]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changes = append(s.changes, c)
	}
	controller := New(config)
	for i := range sims {
		sims[i] = &sim{
			t: t, controller: controller, endpoint: webhook.NewEndpointID(), host: "receiver.test:443", limits: limits, begun: time.Now(), serve: serve,
			late: time.Second, random: rand.New(rand.NewPCG(1, uint64(i+2))),
		}
		sims[i].start()
	}
	return sims
}

func (s *sim) start() {
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wait.Go(s.releaser)
	s.t.Cleanup(s.end)
}

// end stops all goroutines and waits for them. A sim ends with its test anyway.
func (s *sim) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop()
	s.wait.Wait()
}

func (s *sim) now() time.Duration { return time.Since(s.begun) }

// sleep waits, unless the sim ends.
func (s *sim) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func (s *sim) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(d) + 1))
}

// send makes a delivery and returns at once. Nothing is made once the sim has ended: end may be waiting already.
func (s *sim) send() {
	d := &simDelivery{id: newDelivery(s.endpoint), asked: s.now(), release: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.all = append(s.all, d)
	s.wait.Go(func() { s.deliver(d) })
}

// stream sends at a rate for a time.
func (s *sim) stream(rate int, over time.Duration) {
	every := time.Second / time.Duration(rate)
	for range int(over / every) {
		s.send()
		if !s.sleep(every) {
			return
		}
	}
}

func (s *sim) deliver(d *simDelivery) {
	released := false
	for s.ctx.Err() == nil {
		decision := s.controller.Acquire(s.ctx, Request{Endpoint: s.endpoint, Delivery: d.id, Limits: s.limits, Host: s.host, Released: released})
		switch kindOf(decision) {
		case isAdmitted:
			if s.request(d, decision.Permit) {
				return
			}
			if !s.sleep(time.Second<<min(d.attempts, 6) + s.upTo(time.Second)) {
				return
			}
			released = false
		case isDeferred:
			s.mu.Lock()
			d.returns++
			s.mu.Unlock()
			at := decision.Until.Sub(s.begun) + s.upTo(s.late)
			if s.stalled != nil {
				at = s.stalled(at)
			}
			if !s.sleep(at - s.now()) {
				return
			}
		case isHeld:
			s.mu.Lock()
			i, _ := slices.BinarySearchFunc(s.held, d, func(a, b *simDelivery) int { return int(a.asked - b.asked) })
			s.held = slices.Insert(s.held, i, d)
			d.holds++
			s.mu.Unlock()
			select {
			case <-d.release:
				released = true
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// request makes one and says whether it delivered.
func (s *sim) request(d *simDelivery, permit *Permit) bool {
	s.mu.Lock()
	d.attempts++
	s.arrivals = append(s.arrivals, s.now())
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	took, result := s.serve(s.now())
	ended := s.sleep(took)
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	if !ended {
		permit.Cancel()
		return true
	}
	result.Latency, result.Number = took, d.attempts
	permit.Done(result)
	if result.Delivered {
		s.mu.Lock()
		d.done = s.now()
		s.mu.Unlock()
	}
	return result.Delivered
}

// releaser releases held deliveries.
func (s *sim) releaser() {
	for s.sleep(time.Second) {
		room := s.controller.Releasable(s.endpoint)
		s.mu.Lock()
		s.reserved = max(s.reserved, queueOf(s.controller, s.endpoint).reserved)
		n := min(room, len(s.held))
		for _, d := range s.held[:n] {
			d.release <- struct{}{}
		}
		s.held = slices.Delete(s.held, 0, n)
		s.mu.Unlock()
	}
}

// within counts the arrivals per second from a time on: the most in any one.
func (s *sim) within(from, to time.Duration) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := make(map[int]int)
	for _, at := range s.arrivals {
		if at >= from && at < to {
			seconds[int((at-from)/time.Second)]++
			most = max(most, seconds[int((at-from)/time.Second)])
		}
	}
	return most
}

// densest is the most arrivals within any second between two times.
func (s *sim) densest(from, to time.Duration) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := 0
	for i, at := range s.arrivals {
		for s.arrivals[first] < max(from, at-time.Second) && first < i {
			first++
		}
		if at >= from && at < to {
			most = max(most, i-first+1)
		}
	}
	return most
}

// closed is when the circuit closed last: it is closed at the end.
func (s *sim) closed() time.Duration {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.changes[len(s.changes)-1]
	require.Equal(s.t, webhook.CircuitClosed, last.To)
	return last.At.Sub(s.begun)
}

// returns tells how often a deferred delivery came back on average, and at most.
func (s *sim) returns() (average float64, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, n := 0, 0
	for _, d := range s.all {
		if d.returns > 0 {
			sum += d.returns
			n++
		}
		most = max(most, d.returns)
	}
	return float64(sum) / float64(max(n, 1)), most
}

// holds is how often each delivery was held, on average.
func (s *sim) holds() (average float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		average += float64(d.holds) / float64(len(s.all))
	}
	return average
}

func (s *sim) heldNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

func (s *sim) delivered() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		if d.done > 0 {
			n++
		}
	}
	return n
}

func constant(latency time.Duration) func(time.Duration) (time.Duration, Result) {
	return func(time.Duration) (time.Duration, Result) { return latency, delivered(latency) }
}
