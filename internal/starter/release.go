package starter

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releaseEvery is how often held deliveries are released, releaseBatch how many of one endpoint
	// at most.
	releaseEvery = time.Second
	releaseBatch = 500
	// findEvery is how often all endpoints with held deliveries are looked for: so deliveries that are
	// held although their endpoint is active go on within a minute, whatever held them.
	findEvery = 20 * time.Second
	heldPage  = 500
	// findAgain is the first pause after a search that failed. It doubles up to findEvery.
	findAgain = time.Second
	// releaseWidth is how many endpoints are worked on at a time, so that one slow call delays few.
	releaseWidth = 8
)

// HeldStore has the held deliveries.
type HeldStore interface {
	// HeldEndpoints looks at up to limit held deliveries after a place, and returns the active or deleted endpoints of those that can be
	// released. next is zero at the end.
	HeldEndpoints(ctx context.Context, after webhook.HeldPlace, limit int) (found []webhook.HeldEndpoint, next webhook.HeldPlace, err error)
	// ReleaseHeld releases the oldest of an endpoint. The relay starts what the caller does not start.
	ReleaseHeld(ctx context.Context, endpoint webhook.EndpointID, limit int) ([]webhook.Start, error)
	// ReleaseExpired releases deliveries that are to be given up.
	ReleaseExpired(ctx context.Context, limit int) ([]webhook.Start, error)
}

// releases reports whether this process releases held deliveries: it needs the admission, to know
// how many.
func (s *Starter) releases() bool { return s.admission != nil && s.heldStore != nil }

// NoteHeld notes that a delivery of the endpoint is about to be held because too many wait, or that another process has held some.
func (s *Starter) NoteHeld(endpoint webhook.EndpointID) {
	if s.releases() {
		s.heldEndpoints.note(endpoint, time.Now(), false)
	}
}

// LanesTaken says that this process admits the requests to more endpoints than before: their held deliveries are looked
// for at once.
func (s *Starter) LanesTaken() { s.lanesTakenAt.Store(time.Now().UnixNano()) }

// lanesTaken is when this process has taken lanes last; long ago if it has not.
func (s *Starter) lanesTaken() time.Time { return time.Unix(0, s.lanesTakenAt.Load()) }

// EndpointChanged says that an endpoint was changed, and may have become active: held deliveries are
// looked for at once, for a few seconds, and a check does not wait.
func (s *Starter) EndpointChanged(endpoint webhook.EndpointID) {
	if s.releases() {
		s.heldEndpoints.note(endpoint, time.Now(), false)
		s.heldEndpoints.checkSoon(endpoint)
	}
}

// Faulted implements activities.Faults.
func (s *Starter) Faulted(endpoint webhook.EndpointID, what string) {
	if s.releases() && s.heldEndpoints.faulted(endpoint, what, time.Now()) {
		s.log.Warn("an internal fault prevents requests to an endpoint; its deliveries are held until a check succeeds", "endpoint", endpoint, "error", what)
	}
}

// FaultOf implements activities.Faults.
func (s *Starter) FaultOf(endpoint webhook.EndpointID) (what string, known bool) {
	return s.heldEndpoints.faultOf(endpoint)
}

// release releases held deliveries of active endpoints, as many as admission can take.
func (s *Starter) release() {
	s.everySecond(func(time.Time) {
		s.releaseDue()
		s.releaseExpired()
	})
}

// findAllHeld finds endpoints with held deliveries, apart from their release, which does not wait for a search that takes long.
func (s *Starter) findAllHeld() {
	var (
		found, again time.Time
		pause        time.Duration
	)
	s.everySecond(func(now time.Time) {
		switch {
		case s.temporalDown.Load() || now.Before(again) || !findDue(found, s.lanesTaken(), now):
		case s.findHeld():
			found, pause = now, 0
		default:
			pause = min(max(2*pause, findAgain), findEvery)
			again = time.Now().Add(pause)
		}
	})
}

// everySecond calls do every releaseEvery until the starter stops.
func (s *Starter) everySecond(do func(now time.Time)) {
	tick := time.NewTicker(releaseEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-tick.C:
		}
		do(time.Now())
	}
}

// findDue reports whether held deliveries are to be looked for: regularly, when this process has taken lanes, and once more
// when what their owner was about to hold then is stored.
func findDue(found, taken, now time.Time) bool {
	stored := taken.Add(holdDelay)
	return now.Sub(found) >= findEvery || found.Before(taken) || found.Before(stored) && !now.Before(stored)
}

// releaseDue releases held deliveries of all endpoints that are due. It ends when Temporal goes down:
// the relay would start all that is released then at once later.
func (s *Starter) releaseDue() {
	forEach(releaseWidth, s.heldEndpoints.due(time.Now()), func(endpoint webhook.EndpointID) {
		if !s.temporalDown.Load() && !s.stopping() {
			s.releaseOf(endpoint)
		}
	})
}

// findHeld finds all endpoints with held deliveries. It returns false if it could not.
func (s *Starter) findHeld() bool {
	var after webhook.HeldPlace
	for !s.temporalDown.Load() && !s.stopping() {
		var next webhook.HeldPlace
		page, err := readBatch(s, func(ctx context.Context, _ int) (page []webhook.HeldEndpoint, err error) {
			page, next, err = s.heldStore.HeldEndpoints(ctx, after, heldPage)
			return page, err
		})
		if err != nil {
			return false
		}
		for _, e := range page {
			s.heldEndpoints.note(e.ID, time.Time{}, e.Faulty)
		}
		if next == (webhook.HeldPlace{}) {
			return true
		}
		after = next
	}
	return false
}

// releaseOf releases some of an endpoint's held deliveries. After an internal fault it checks first:
// what a request needs, and then one delivery, because there are faults that only a request meets.
// Then twice as many go each time. If admission permits none now, a successful check ends the
// fault, so that new deliveries are not held.
func (s *Starter) releaseOf(endpoint webhook.EndpointID) {
	now := time.Now()
	limit, check := s.heldEndpoints.allowed(endpoint)
	if check {
		if err := s.checkEndpoint(endpoint); err != nil {
			s.heldEndpoints.checkFailed(endpoint, err, now)
			return
		}
	}
	n := min(s.admission.Releasable(endpoint)-s.heldEndpoints.underWay(endpoint, now), limit)
	switch {
	case n > 0:
	case !s.admission.Admits(endpoint):
		s.heldEndpoints.released(endpoint, 0, false, now) // no longer of interest here
		if check && s.tellHeld != nil {                   // this process has held them
			s.tellHeld(endpoint)
		}
		return
	case check:
		s.heldEndpoints.checkSucceeded(endpoint, now)
		return
	default:
		return
	}
	ctx, cancel := context.WithTimeout(s.life, readTimeout)
	defer cancel()
	starts, err := s.heldStore.ReleaseHeld(ctx, endpoint, n)
	if err != nil {
		if !s.stopping() {
			again := s.heldEndpoints.failed(endpoint, time.Now())
			s.log.Warn("held deliveries of an endpoint cannot be released", "endpoint", endpoint, "error", err, "again_in", again)
		}
		return
	}
	// Before the starts: one of them may meet the fault again.
	if s.heldEndpoints.released(endpoint, len(starts), len(starts) == n, now) {
		s.log.Info("an endpoint can be sent to again; its held deliveries are being released", "endpoint", endpoint)
	}
	s.startAssigned(starts)
}

// checkEndpoint finds out whether all that a request to an endpoint needs is there.
func (s *Starter) checkEndpoint(endpoint webhook.EndpointID) error {
	requests := s.requests.Load()
	if requests == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, readTimeout)
	defer cancel()
	return (*requests).CheckEndpoint(ctx, endpoint)
}

// releaseExpired starts held deliveries that are to be given up.
func (s *Starter) releaseExpired() {
	for !s.temporalDown.Load() && !s.stopping() {
		starts, err := readBatch(s, s.heldStore.ReleaseExpired)
		if err != nil {
			return
		}
		s.startAssigned(starts)
		if len(starts) < relayBatch {
			return
		}
	}
}
