package admission

import "time"

// open says whether a newcomer of the endpoint may go at once: one place is left to each
// of the others that wait, whether they are here or come at the time they were told.
func (h *host) open(e *endpoint) bool {
	return h == nil || h.inFlight+h.others(e) < h.gate.config.MaxInFlightPerHost
}

// others is how many other endpoints wait.
func (h *host) others(e *endpoint) int {
	if e.rival > 0 {
		return len(h.rivals) - 1
	}
	return len(h.rivals)
}

// turn is when a newcomer's turn comes: behind one of each other endpoint that waits.
func (h *host) turn(now time.Duration, e *endpoint) time.Duration {
	if h.open(e) {
		return now
	}
	return h.nextFree(now) + time.Duration(h.others(e))*h.turnover(now)
}

// share is how far apart the requests of one endpoint are to be, so that each that waits
// here gets as many; 0 while the endpoint has all it wants.
func (h *host) share(now time.Duration, e *endpoint) time.Duration {
	if h == nil {
		return 0
	}
	return h.shareOf(h.turnover(now), e)
}

// usualShare is share as far as it follows from the requests that have ended.
func (h *host) usualShare(e *endpoint) time.Duration {
	if h == nil {
		return 0
	}
	return h.shareOf(h.gap, e)
}

func (h *host) shareOf(turnover time.Duration, e *endpoint) time.Duration {
	if e.rival == 0 && h.open(e) {
		return 0
	}
	return time.Duration(h.others(e)+1) * turnover
}

// turnOfMissed is when somebody whose turn came while no place was free is to come again.
// It is spread over a round, so that those who missed theirs do not come together.
func (h *host) turnOfMissed(now time.Duration, e *endpoint) time.Duration {
	if h.hasPlace(now, e) {
		return now
	}
	if h.kept == nil || now > h.keptUntil {
		return h.nextFree(now)
	}
	round := min(h.share(now, e), soon/2)
	return h.nextFree(now) + time.Duration(h.gate.config.Random()*float64(round))
}

// miss notes that somebody came at its turn, waited, found no place, and comes again at
// again. Where places become free less often than somebody waits, an endpoint might miss
// one after the other: a place is kept for the one that has missed most, until it comes. For
// one, and not at once, since a place that is kept is empty.
func (h *host) miss(now, again time.Duration, e *endpoint) {
	if h == nil {
		return
	}
	e.missed++
	if h.turnover(now) <= slowTurnover || e.missed < 2 {
		return
	}
	if h.kept == nil || now > h.keptUntil || e.missed > h.kept.missed {
		h.kept, h.keptUntil = e, again+lateness
	}
}

// contend makes an endpoint one that waits for a place.
func (h *host) contend(e *endpoint) {
	if e.rival == 0 {
		h.rivals = append(h.rivals, e)
		e.rival = len(h.rivals)
	}
}

// giveUp makes an endpoint one that does not.
func (h *host) giveUp(e *endpoint) {
	if h.kept == e {
		h.kept = nil
	}
	if e.rival == 0 {
		return
	}
	last := len(h.rivals) - 1
	h.rivals[e.rival-1] = h.rivals[last]
	h.rivals[last].rival = e.rival
	h.rivals[last] = nil
	h.rivals = h.rivals[:last]
	e.rival = 0
	if last == 0 {
		h.rivals = nil
	}
}

// review drops rivals that wait no more, until it finds two that do. So the work is
// spread over the calls, and reservations for which nobody comes keep no place for long.
func (h *host) review(now time.Duration) {
	if h == nil {
		return
	}
	for waiting := 0; waiting < 2 && len(h.rivals) > 0; {
		h.look %= len(h.rivals)
		e := h.rivals[h.look]
		if e.wantsPlace(now) {
			h.look++
			waiting++
		} else {
			h.giveUp(e)
		}
	}
	h.pump(now) // what was kept for one of them
}

// wantsPlace says whether somebody would take a place of the host now or within the next
// two rounds. Whoever waits for something else leaves it to others.
func (e *endpoint) wantsPlace(now time.Duration) bool {
	e.expire(now)
	if len(e.line.slots) == 0 || e.barredUntil > now || e.inFlight >= e.limits.MaxInFlight {
		return false
	}
	if e.circuit.state != CircuitClosed && !e.probeDue(now) {
		return false
	}
	return e.line.slots[0].at <= now+minDeferral+2*e.host.share(now, e)
}
