package recovery

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releaseEvery is how often held deliveries are released, releaseBatch how many of one endpoint
	// at most.
	releaseEvery = time.Second
	releaseBatch = 500
	// holdDelay is how long a hold may take from its decision until it is stored: until then the
	// endpoint is kept on the list, even if it has no held deliveries.
	holdDelay = 5 * time.Second
	// releaseDelay is how long a released delivery may take until admission counts it.
	releaseDelay = 3 * time.Second
	// firstCheck is how long after an internal fault its endpoint is checked. The pause doubles up to
	// lastCheck.
	firstCheck, lastCheck = time.Second, time.Minute
	// firstRetry is how long a release that failed in the store is not tried again. The pause doubles up to lastRetry: what is wrong with the
	// store is wrong for all, and each try holds a connection.
	firstRetry, lastRetry = 2 * time.Second, time.Minute
	// maxFaulty bounds the endpoints whose faults are kept in memory. The others are in the store.
	maxFaulty = 20_000
)

// HeldEndpoints are the endpoints that may have held deliveries, and those that an internal fault keeps from being sent to. What is not
// here is found in the store.
type HeldEndpoints struct {
	log          *slog.Logger
	lanesTakenAt atomic.Int64 // in Unix nanoseconds; 0: never

	mu     sync.Mutex
	byID   map[webhook.EndpointID]*heldEndpoint
	faulty int // how many have a fault
}

// NewHeldEndpoints returns a list without endpoints.
func NewHeldEndpoints(log *slog.Logger) *HeldEndpoints { return &HeldEndpoints{log: log} }

type heldEndpoint struct {
	noted      time.Time // when a hold was noted last; zero if it was read from the store
	released   int       // deliveries since releasedAt, which admission may not count yet
	releasedAt time.Time
	fault      *fault        // nil: none
	retryPause time.Duration // after the last release if that failed; zero if it did not
	retryAt    time.Time     // no release before
}

// fault is an internal fault that keeps an endpoint from being sent to.
type fault struct {
	what    string        // for users; "" if it was read from the store
	active  bool          // deliveries are held until a check succeeds
	changed time.Time     // when it was met, or something was released, last
	pause   time.Duration // before the next check
	checkAt time.Time
	ramp    int // how many may be released at a time; 0: a check comes first
}

// NoteHeld notes that a delivery of the endpoint is about to be held because too many wait, or that another process has held some.
func (h *HeldEndpoints) NoteHeld(endpoint webhook.EndpointID) { h.note(endpoint, time.Now(), false) }

// LanesTaken says that this process admits the requests to more endpoints than before: their held deliveries are looked
// for at once.
func (h *HeldEndpoints) LanesTaken() { h.lanesTakenAt.Store(time.Now().UnixNano()) }

// lanesTaken is when this process has taken lanes last; long ago if it has not.
func (h *HeldEndpoints) lanesTaken() time.Time { return time.Unix(0, h.lanesTakenAt.Load()) }

// EndpointChanged says that an endpoint was changed, and may have become active: held deliveries are
// looked for at once, for a few seconds, and a check does not wait.
func (h *HeldEndpoints) EndpointChanged(endpoint webhook.EndpointID) {
	h.note(endpoint, time.Now(), false)
	h.checkSoon(endpoint)
}

// Faulted implements activities.Faults.
func (h *HeldEndpoints) Faulted(endpoint webhook.EndpointID, what string) {
	if h.faulted(endpoint, what, time.Now()) {
		h.log.Warn("an internal fault prevents requests to an endpoint; its deliveries are held until a check succeeds", "endpoint", endpoint, "error", what)
	}
}

// note notes that an endpoint has held deliveries, at the given time or, if that is zero, in the store.
// faulty says that an internal fault holds some.
func (h *HeldEndpoints) note(id webhook.EndpointID, at time.Time, faulty bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.endpoint(id)
	if e.noted.Before(at) {
		e.noted = at
	}
	if faulty && e.fault == nil && h.faulty < maxFaulty {
		h.addFault(e)
	}
}

// faulted notes a fault. It reports the first one of an endpoint.
func (h *HeldEndpoints) faulted(id webhook.EndpointID, what string, now time.Time) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.byID[id]; (known == nil || known.fault == nil) && h.faulty >= maxFaulty {
		return false
	}
	e := h.endpoint(id)
	if e.fault == nil {
		h.addFault(e)
	}
	if e.fault.active && e.fault.ramp == 0 { // met by another attempt that was under way
		return false
	}
	e.fault.what = what
	e.fault.activate(now)
	return e.fault.pause == firstCheck
}

// FaultOf returns the fault of an endpoint until a check succeeds. It implements activities.Faults.
func (h *HeldEndpoints) FaultOf(id webhook.EndpointID) (what string, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byID[id]; e != nil && e.fault != nil && e.fault.active {
		return e.fault.what, true
	}
	return "", false
}

// IsFaulty reports an endpoint that has a fault, or had one a moment ago.
func (h *HeldEndpoints) IsFaulty(id webhook.EndpointID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	return e != nil && e.fault != nil
}

// checkSoon has the next check and release of an endpoint made at once.
func (h *HeldEndpoints) checkSoon(id webhook.EndpointID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	if e == nil {
		return
	}
	e.retryPause, e.retryAt = 0, time.Time{}
	if e.fault != nil {
		e.fault.pause, e.fault.checkAt = 0, time.Time{}
	}
}

// failed notes that the store could not release, and returns how long the endpoint is left alone.
func (h *HeldEndpoints) failed(id webhook.EndpointID, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.endpoint(id)
	e.retryPause = min(max(2*e.retryPause, firstRetry), lastRetry)
	e.retryAt = now.Add(e.retryPause)
	return e.retryPause
}

// due returns the endpoints to release from now, in no order.
func (h *HeldEndpoints) due(now time.Time) (ids []webhook.EndpointID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, e := range h.byID {
		if !e.retryAt.After(now) && (e.fault == nil || !e.fault.checkAt.After(now)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// allowed returns how many of an endpoint may be released now, and whether a check comes first.
func (h *HeldEndpoints) allowed(id webhook.EndpointID) (limit int, check bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e := h.byID[id]; {
	case e == nil || e.fault == nil:
		return releaseBatch, false
	case e.fault.ramp == 0:
		return 1, true
	default:
		return e.fault.ramp, false
	}
}

// underWay is how many were released a moment ago.
func (h *HeldEndpoints) underWay(id webhook.EndpointID, now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	if e == nil || now.Sub(e.releasedAt) >= releaseDelay {
		return 0
	}
	return e.released
}

// checkFailed notes that a check met a fault.
func (h *HeldEndpoints) checkFailed(id webhook.EndpointID, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byID[id]; e != nil && e.fault != nil {
		e.fault.what = err.Error()
		e.fault.activate(now)
	}
}

// checkSucceeded notes that a check met no fault, and that nothing could be released.
func (h *HeldEndpoints) checkSucceeded(id webhook.EndpointID, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byID[id]; e != nil && e.fault != nil {
		e.fault.active, e.fault.ramp, e.fault.changed = false, 1, now
	}
}

// released notes that n were released, and whether there may be more. It reports that a fault is over:
// nothing is left, and nothing was held again for a while. An endpoint of which nothing is left is
// forgotten.
func (h *HeldEndpoints) released(id webhook.EndpointID, n int, more bool, now time.Time) (faultOver bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	if e == nil {
		return false
	}
	e.retryPause, e.retryAt = 0, time.Time{}
	if n > 0 && now.Sub(e.releasedAt) >= releaseDelay {
		e.released, e.releasedAt = 0, now
	}
	e.released += n
	if f := e.fault; f != nil {
		switch {
		case f.ramp == 0: // the first delivery, and no other before the next look
			f.ramp, f.changed = 1, now
			return false
		case more:
			f.active, f.ramp, f.changed = false, min(2*f.ramp, releaseBatch), now
			return false
		case now.Sub(f.changed) < holdDelay:
			f.active = false
			return false
		}
		e.fault, faultOver = nil, true
		h.faulty--
	}
	if !more && now.Sub(e.noted) >= holdDelay {
		delete(h.byID, id)
	}
	return faultOver
}

// endpoint returns an endpoint and adds it if it is not known. The caller holds the lock.
func (h *HeldEndpoints) endpoint(id webhook.EndpointID) *heldEndpoint {
	if h.byID == nil {
		h.byID = map[webhook.EndpointID]*heldEndpoint{}
	}
	e := h.byID[id]
	if e == nil {
		e = &heldEndpoint{}
		h.byID[id] = e
	}
	return e
}

// addFault adds a fault. The caller holds the lock.
func (h *HeldEndpoints) addFault(e *heldEndpoint) {
	e.fault = &fault{}
	h.faulty++
}

// activate puts the next check off.
func (f *fault) activate(now time.Time) {
	f.pause = min(max(2*f.pause, firstCheck), lastCheck)
	f.active, f.changed, f.checkAt, f.ramp = true, now, now.Add(f.pause), 0
}
