package admission

import (
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// Reservations of new deliveries go horizonNew ahead, those of released ones horizonReleased,
	// so that there is always room for a backlog before new deliveries.
	horizonNew      = 4 * time.Minute
	horizonReleased = 5 * time.Minute
	// The same while the latency bounds the rate: a receiver that hung may answer at once again,
	// and a delivery that has a reservation waits for it all the same.
	latencyHorizonNew      = 5 * time.Second
	latencyHorizonReleased = 10 * time.Second

	// maxReserved is how many reservations one endpoint may have, and unknownReserved how many
	// one that has not answered yet: it may hang.
	maxReserved     = 10_000
	unknownReserved = 100
	// alwaysReserved is how many deliveries may have a reservation however far away it is: so an
	// endpoint is tried again without any being released.
	alwaysReserved = 4
)

// reserve reserves the first time that is free, not before from and worth a timer.
func (s *schedule) reserve(now, from time.Duration, reason string, req *Request) Decision {
	n := len(s.reservations.all)
	if n >= s.mayReserve() || n >= alwaysReserved && s.env.reserved.shares.Free(s.reservations.tenant.Value()) == 0 {
		return Decision{Reason: webhook.ReasonBacklog}
	}
	p := s.pacing(now)
	at := s.reservations.free(max(from, now+minDeferral), p)
	if at > now+s.reach(now, p, req.Released) && n >= alwaysReserved {
		return Decision{Reason: webhook.ReasonBacklog}
	}
	s.reservations.add(at, req.Delivery)
	return s.deferred(at, reason)
}

// reserveAgain reserves for a delivery that came at its reservation while no slot was free:
// before those that have not had theirs.
func (s *schedule) reserveAgain(now time.Duration, req *Request) Decision {
	if !s.slots.full() && s.rate.allowsLate(now) && !s.host.mayTake(now, &s.hostEntry) {
		s.hostEntry.missed++
	}
	from, reason := s.earliest(now)
	if !s.shut(now) && len(s.reservations.all) < s.mayReserve() {
		p := s.pacing(now)
		p.slots /= 2
		slot := min(s.host.slotForQueued(now, &s.hostEntry), now+secondChance/2)
		least := max(s.slots.nextFree(now), slot, s.rate.next-burst, now+minDeferral)
		if at, found := s.reservations.freeBefore(least, now+secondChance, p); found {
			s.reservations.add(at, req.Delivery)
			return s.deferred(at, reason)
		}
	}
	return s.reserve(now, from, reason, req)
}

// mayReserve is how many reservations there may be in all.
func (s *schedule) mayReserve() int {
	switch {
	case s.breaker.relapsed():
		return alwaysReserved // more would come back in vain again and again
	case !s.slots.known:
		return max(unknownReserved, 4*s.slots.limit)
	}
	return maxReserved
}

// reach is how far ahead a delivery may get a reservation. After a relapse it grows slowly: if the
// circuit opened again, all deliveries with a reservation would come back in vain.
func (s *schedule) reach(now time.Duration, p pacing, released bool) time.Duration {
	first, last := horizonNew, horizonReleased
	if !s.shut(now) && p.bySlots(now) && p.reason == webhook.ReasonInFlight {
		first, last = latencyHorizonNew, latencyHorizonReleased
	}
	reach := first
	if released {
		reach = last
	}
	if closed, recovers := s.breaker.recoversFromRelapse(now); recovers {
		reach = min(reach, rampTime/2+2*closed)
	}
	return reach
}

func (s *schedule) deferred(at time.Duration, reason string) Decision {
	return Decision{Reason: reason, Until: s.env.time(at), Wait: at - s.env.now()}
}
