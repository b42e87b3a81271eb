package webhook

import (
	"bytes"
	"fmt"
	"time"
)

// Rates of a release, in deliveries per minute.
const (
	MaxReleaseRate = 60_000
	// ownPace is the rate at which a release without a rate begins, if the endpoint did not get more before. It doubles each minute.
	ownPace = 600
	// releaseRound is the time between two turns of a release at a high rate, and maxReleaseLate is how late a turn may be whose
	// deliveries are still made up for.
	releaseRound, maxReleaseLate = time.Second, 2 * time.Second
)

// ReleaseState is the state of a release.
type ReleaseState uint8

// The states of a release.
const (
	ReleaseRunning ReleaseState = iota
	ReleaseStopped              // by a person, or because the endpoint is paused or disabled
	ReleaseDone                 // nothing is held
)

// ReleaseStates returns all states in order.
func ReleaseStates() []ReleaseState {
	return []ReleaseState{ReleaseRunning, ReleaseStopped, ReleaseDone}
}

// String is the state's name in the API.
func (s ReleaseState) String() string {
	switch s {
	case ReleaseRunning:
		return "running"
	case ReleaseStopped:
		return "stopped"
	case ReleaseDone:
		return "done"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Release is the release of an endpoint's held deliveries.
//
// A person begins it by resuming the endpoint or by changing the release. Then it has a set, the deliveries up to Until, and only they are
// counted, paced and stopped. Deliveries that are held later are released besides, as admission permits.
type Release struct {
	EndpointID EndpointID
	TenantID   string
	State      ReleaseState
	Rate       int        // per minute; 0: Everpost's own pace
	Until      DeliveryID // the last one of the set; zero: no person has begun the release, and all are released
	Total      *int64     // of the set; nil: not counted
	Released   int64      // of the set, or since StartedAt if there is none
	StartedAt  time.Time  // zero: nothing was ever held
	RunningAt  time.Time  // since when the set goes: it was begun, or went on after a stop
	FaultedAt  time.Time  // when an internal fault has held one last, since StartedAt; zero: never
}

// Remaining is how many deliveries of the set are still held; nil if that is not known.
func (r *Release) Remaining() *int64 {
	if r.Total == nil {
		return nil
	}
	return new(max(0, *r.Total-r.Released))
}

// Stops reports whether a held delivery is of the set of a release that was stopped.
func (r *Release) Stops(d *Delivery) bool {
	return r.State == ReleaseStopped && !r.Until.IsZero() && bytes.Compare(d.DeliveryID[:], r.Until[:]) <= 0
}

// Pace is how many deliveries of the set may be released per minute; 0 for as many as admission permits. usual is how many the endpoint got
// per minute before; 0 if that is not known.
func (r *Release) Pace(now time.Time, usual int) int {
	switch {
	case r.Rate > 0:
		return r.Rate
	case r.Until.IsZero():
		return 0
	}
	pace := max(ownPace, usual)
	for minutes := now.Sub(r.RunningAt) / time.Minute; minutes > 0; minutes-- {
		if pace *= 2; pace >= MaxReleaseRate {
			return 0
		}
	}
	return pace
}

// Turn is how many deliveries may be released at a pace in a turn that was planned for a time, at least 1. limit is the most.
func Turn(pace int, now, planned time.Time, limit int) int {
	if pace == 0 {
		return limit
	}
	late := min(max(0, now.Sub(planned)), maxReleaseLate)
	return min(limit, max(1, int(float64(pace)*(late+releaseRound).Minutes())))
}

// NextTurn is the time of the turn after one in which n were released. The rate is met over several turns, and never exceeded by more than
// what is released in a second.
func NextTurn(pace, n int, now, planned time.Time) time.Time {
	next := now.Add(releaseRound)
	if pace == 0 || n == 0 {
		return next
	}
	if earliest := now.Add(-maxReleaseLate); planned.Before(earliest) {
		planned = earliest
	}
	return planned.Add(time.Duration(float64(n) / float64(pace) * float64(time.Minute)))
}

// ReleaseChange is a change of a release by a person.
type ReleaseChange struct {
	State *ReleaseState // ReleaseRunning or ReleaseStopped; nil: unchanged
	Rate  *int          // as Release.Rate; nil: unchanged
}

// DueRelease is a release whose turn has come.
type DueRelease struct {
	Release

	Deleted bool      // the endpoint was deleted
	DueAt   time.Time // when its turn was due, by the database's clock
	Now     time.Time // by the database's clock
}

// PostponedRelease puts the next turn of a release off that was due at a time.
type PostponedRelease struct {
	EndpointID EndpointID
	DueAt      time.Time
	Pause      time.Duration
}

// ReleaseTurn asks for a turn of a release.
type ReleaseTurn struct {
	EndpointID EndpointID
	Limit      int           // how many may be released
	Usual      int           // see Release.Pace
	Pause      time.Duration // until the next turn, at least
	Look       time.Duration // until the next turn if nothing can be released now, at least
}
