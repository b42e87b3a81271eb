package recovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releaseEvery is how often due releases are looked for, releaseBatch how many deliveries of one are released in a turn, and releaseRound how
	// many turns a round has at most. roundBudget is after how long a round begins no further turn.
	releaseEvery               = 500 * time.Millisecond
	releaseBatch, releaseRound = 500, 200
	roundBudget                = 2 * time.Second
	// releaseWidth is how many turns are made at a time, and turnTimeout bounds one.
	releaseWidth = 8
	turnTimeout  = 3 * time.Second
	// releaseDelay is how long a released delivery may take until admission counts it.
	releaseDelay = 3 * time.Second
	// firstPause is how long an endpoint is left alone that cannot be sent to. The pause doubles up to lastPause, or for one that only has no room
	// up to lastWait.
	firstPause, lastPause, lastWait = time.Second, time.Minute, 4 * time.Second
)

// Releases finds the releases that are due, and makes their turns.
type Releases interface {
	// StartRoom is how many deliveries may be released now: 0 while new events wait for their start.
	StartRoom(ctx context.Context) (int, error)
	// DueReleases returns releases of some lanes whose turn has come, one of each tenant in turn.
	DueReleases(ctx context.Context, lanes []int, limit int) ([]webhook.DueRelease, error)
	// TakeTurn releases held deliveries. The relay starts what the caller does not start.
	TakeTurn(ctx context.Context, turn webhook.ReleaseTurn) (webhook.ReleasedTurn, error)
	// Postpone puts turns off.
	Postpone(ctx context.Context, by map[webhook.EndpointID]time.Duration) error
}

// Admission says how many held deliveries an endpoint can take.
type Admission interface {
	// OwnLanes are the lanes whose endpoints' requests this process admits. It releases their held deliveries.
	OwnLanes() []int
	// Releasable is how many held deliveries of an endpoint are to be released now.
	Releasable(id webhook.EndpointID) int
	// UsualRate is how many requests per second the endpoint was sent before; 0 if that is not known.
	UsualRate(id webhook.EndpointID) float64
}

// Intake starts what was released.
type Intake interface {
	// Released does not block. The relay starts what it does not start.
	Released(all []webhook.Start)
}

// ReleaseConfig is what a release needs. All fields are required.
type ReleaseConfig struct {
	Engine    *engine.Engine
	Faults    *Faults
	Store     Releases
	Admission Admission
	Intake    Intake
	Logger    *slog.Logger
}

// Release releases held deliveries of the endpoints in this process's lanes, whatever holds them, the oldest of each endpoint first.
//
// A round reads how much room there is, by outbox_taken and outbox_by_workflow, and the first 50 due releases of each lane, by releases_due:
// some 130 blocks when nothing is due, whatever is held. Then it makes up to 200 turns, of one tenant after the other, 8 at a time, and each
// tenant gets the same share of the room. A turn costs what TakeTurn says; one that takes longer than 3 s is given up. After 2 s a round begins
// no further turn, and what is left comes first in the next one. An endpoint that cannot be sent to, or whose turn fails, is put off alone.
type Release struct {
	engine    *engine.Engine
	faults    *Faults
	store     Releases
	admission Admission
	intake    Intake
	log       *slog.Logger

	courses courses
}

// NewRelease returns a release that does not run.
func NewRelease(c ReleaseConfig) *Release {
	return &Release{engine: c.Engine, faults: c.Faults, store: c.Store, admission: c.Admission, intake: c.Intake, log: c.Logger}
}

// Run releases until ctx ends.
func (r *Release) Run(ctx context.Context) {
	everyTick(ctx, releaseEvery, func() {
		_, _ = r.runOnce(ctx) // the error is logged, and the next round tries again
	})
}

// runOnce makes a round, and returns how many deliveries it has released. It does nothing while Temporal is down: the relay would start all that
// is released then at once later. The error is that of the store.
func (r *Release) runOnce(ctx context.Context) (released int, err error) {
	if !r.engine.Health.Up() || ctx.Err() != nil {
		return 0, nil
	}
	lasting, cancel := engine.Outlive(ctx, readTimeout)
	defer cancel()
	room, due, err := r.find(lasting)
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "held deliveries cannot be looked for", "error", err)
		}
		return 0, err
	}
	shared := newShares(room, due)
	var mu sync.Mutex
	engine.ForEach(releaseWidth, due, func(d webhook.DueRelease) {
		if !r.engine.Health.Up() || ctx.Err() != nil || time.Since(shared.began) >= roundBudget {
			return
		}
		n, failed := r.turn(ctx, shared, d)
		mu.Lock()
		defer mu.Unlock()
		released, err = released+n, errors.Join(err, failed)
	})
	return released, errors.Join(err, r.store.Postpone(lasting, shared.postponed))
}

// find returns the room, and the releases that are due if there is any.
func (r *Release) find(ctx context.Context) (room int, due []webhook.DueRelease, err error) {
	lanes := r.admission.OwnLanes()
	if len(lanes) == 0 {
		return 0, nil, nil
	}
	if room, err = r.store.StartRoom(ctx); err != nil || room <= 0 {
		return 0, nil, err
	}
	due, err = r.store.DueReleases(ctx, lanes, releaseRound)
	return room, due, err
}

// turn makes the turn of one release, as far as the round's room, admission and the endpoint's faults permit.
func (r *Release) turn(ctx context.Context, shared *shares, d webhook.DueRelease) (n int, err error) {
	now := time.Now()
	c := r.courses.of(&d, now)
	limit := min(c.limit(&d), releaseBatch)
	if _, faulty := r.faults.FaultOf(d.EndpointID); faulty {
		limit = 0
	} else if !d.Deleted { // nothing is sent to one that was
		limit = min(limit, r.admission.Releasable(d.EndpointID)-c.underWay(now))
	}
	if limit <= 0 {
		shared.postpone(d.EndpointID, c.waits(lastWait))
		return 0, nil
	}
	if limit = shared.take(d.TenantID, limit); limit == 0 { // it comes first in the next round
		return 0, nil
	}
	lasting, cancel := engine.Outlive(ctx, turnTimeout)
	defer cancel()
	done, err := r.store.TakeTurn(lasting, webhook.ReleaseTurn{
		EndpointID: d.EndpointID, Limit: limit, Usual: int(60 * r.admission.UsualRate(d.EndpointID)),
		Pause: c.turnPause(), Look: c.pause, Place: c.place,
	})
	shared.give(d.TenantID, limit-len(done.Starts))
	if err != nil {
		pause := c.waits(lastPause)
		shared.postpone(d.EndpointID, pause)
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "held deliveries of an endpoint cannot be released", "endpoint", d.EndpointID, "error", err, "again_in", pause)
		}
		return 0, err
	}
	c.made(&d, &done, now)
	r.intake.Released(done.Starts)
	return len(done.Starts), nil
}

// shares are what each tenant with due releases gets of the room of a round.
type shares struct {
	began time.Time

	mu        sync.Mutex
	left      map[string]int
	postponed map[webhook.EndpointID]time.Duration
}

func newShares(room int, due []webhook.DueRelease) *shares {
	r := &shares{began: time.Now(), left: map[string]int{}, postponed: map[webhook.EndpointID]time.Duration{}}
	for i := range due {
		r.left[due[i].TenantID] = 0
	}
	for tenant := range r.left {
		r.left[tenant] = max(1, room/len(r.left))
	}
	return r
}

// take takes up to n of a tenant's share.
func (r *shares) take(tenant string, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, r.left[tenant])
	r.left[tenant] -= n
	return n
}

// give gives back what was not used.
func (r *shares) give(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[tenant] += n
}

func (r *shares) postpone(id webhook.EndpointID, by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.postponed[id] = by
}
