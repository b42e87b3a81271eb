package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/engine"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// releaseEvery is how often due releases are looked for, and releaseAgain how often while some are released, until none was for busyTime: a few
	// at a time, so that new events do not wait behind a crowd. releaseBatch is how many deliveries of one are released in a turn, and releaseRound how many
	// turns a round has at most. roundBudget is after how long a round begins no further turn.
	releaseEvery, releaseAgain = 500 * time.Millisecond, 100 * time.Millisecond
	busyTime                   = time.Second
	releaseBatch, releaseRound = 500, 200
	roundBudget                = 2 * time.Second
	// releaseWidth is of how many tenants turns are made at a time, each with a connection, and turnTimeout bounds one.
	releaseWidth = 4
	turnTimeout  = 3 * time.Second
	// releaseDelay is how long a released delivery may take until admission counts it.
	releaseDelay = 3 * time.Second
	// firstPause is how long an endpoint is left alone that cannot be sent to. The pause doubles up to lastPause, or for one that only has no room
	// up to lastWait.
	firstPause, lastPause, lastWait = time.Second, time.Minute, 4 * time.Second
)

// Releases finds the releases that are due, and makes their turns.
type Releases interface {
	// StartRoom is how many deliveries of some lanes may be released now: 0 while new events wait for their start.
	StartRoom(ctx context.Context, lanes []int) (int, error)
	// DueReleases returns releases of some lanes whose turn has come, one of each tenant in turn.
	DueReleases(ctx context.Context, lanes []int, limit int) ([]webhook.DueRelease, error)
	// TakeTurn releases held deliveries. The relay starts what the caller does not start.
	TakeTurn(ctx context.Context, turn webhook.ReleaseTurn) ([]webhook.Start, error)
	// Postpone puts turns off.
	Postpone(ctx context.Context, all []webhook.PostponedRelease) error
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
// A round reads how much room there is, by outbox_taken and outbox_released, and the next tenants with open releases of each lane, by
// releases_due_by_tenant: some 130 blocks when nothing is open, whatever is held. Then it makes up to 200 turns, those of a tenant one after the
// other and those of 4 tenants at a time, and each tenant gets the same share of the room. A turn costs what TakeTurn says; one that takes longer
// than 3 s is given up. After 2 s a round begins no further turn: what is left is still due in the next one. Tenants whose last turn failed
// come last. An endpoint that cannot be sent to, or whose turn fails, is put off alone.
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
	next := time.NewTimer(releaseEvery)
	defer next.Stop()
	var last time.Time // when some were released
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		pause := releaseEvery
		if released, _ := r.runOnce(ctx); released > 0 { // an error is logged, and the next round tries again
			last = time.Now()
		}
		if time.Since(last) < busyTime {
			pause = releaseAgain
		}
		next.Reset(pause)
	}
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
	tenants := r.inOrder(byTenant(due))
	now := releasing{Release: r, began: time.Now(), share: max(1, room/max(1, len(tenants)))}
	engine.ForEach(releaseWidth, tenants, func(due []webhook.DueRelease) { now.turnsOf(ctx, due) })
	return now.released, errors.Join(now.err, r.store.Postpone(lasting, now.postponed))
}

// byTenant are due releases in the order of their tenants' first one.
func byTenant(due []webhook.DueRelease) (all [][]webhook.DueRelease) {
	at := map[string]int{}
	for _, d := range due {
		i, known := at[d.TenantID]
		if !known {
			i, all = len(all), append(all, nil)
			at[d.TenantID] = i
		}
		all[i] = append(all[i], d)
	}
	return all
}

// inOrder puts the tenants last whose last turn failed, so that turns that hang delay no others.
func (r *Release) inOrder(tenants [][]webhook.DueRelease) [][]webhook.DueRelease {
	slices.SortStableFunc(tenants, func(a, b []webhook.DueRelease) int {
		return cmp.Compare(r.courses.failures(a[0].EndpointID), r.courses.failures(b[0].EndpointID))
	})
	return tenants
}

// find returns the room, and the releases that are due if there is any.
func (r *Release) find(ctx context.Context) (room int, due []webhook.DueRelease, err error) {
	lanes := r.admission.OwnLanes()
	if len(lanes) == 0 {
		return 0, nil, nil
	}
	if room, err = r.store.StartRoom(ctx, lanes); err != nil || room <= 0 {
		return 0, nil, err
	}
	due, err = r.store.DueReleases(ctx, lanes, releaseRound)
	return room, due, err
}

// releasing is a round.
type releasing struct {
	*Release

	began time.Time
	share int // of the room, of each tenant

	mu        sync.Mutex
	released  int
	postponed []webhook.PostponedRelease
	err       error
}

// turnsOf makes the turns of a tenant's releases. What one of them does not use of the tenant's share is for the next one.
func (r *releasing) turnsOf(ctx context.Context, due []webhook.DueRelease) {
	left := r.share
	for i := range due {
		if left == 0 || !r.engine.Health.Up() || ctx.Err() != nil || time.Since(r.began) >= roundBudget {
			return
		}
		n, pause, err := r.turn(ctx, left, &due[i])
		left -= n
		r.mu.Lock()
		r.released, r.err = r.released+n, errors.Join(r.err, err)
		if pause > 0 {
			r.postponed = append(r.postponed, webhook.PostponedRelease{EndpointID: due[i].EndpointID, DueAt: due[i].DueAt, Pause: pause})
		}
		r.mu.Unlock()
	}
}

// turn makes the turn of one release of at most so many deliveries, as far as admission and the endpoint's faults permit. It returns how many it has
// released, and for how long the release is to be put off.
func (r *Release) turn(ctx context.Context, most int, d *webhook.DueRelease) (n int, pause time.Duration, err error) {
	now := time.Now()
	c := r.courses.of(d, now)
	limit := min(c.limit(d), most, releaseBatch)
	if _, faulty := r.faults.FaultOf(d.EndpointID); faulty {
		limit = 0
	} else if !d.Deleted { // nothing is sent to one that was
		limit = min(limit, r.admission.Releasable(d.EndpointID)-c.underWay(now))
	}
	if limit <= 0 {
		return 0, c.waits(lastWait), nil
	}
	lasting, cancel := engine.Outlive(ctx, turnTimeout)
	defer cancel()
	starts, err := r.store.TakeTurn(lasting, webhook.ReleaseTurn{
		EndpointID: d.EndpointID, Limit: limit, Usual: int(60 * r.admission.UsualRate(d.EndpointID)),
		Pause: c.turnPause(), Look: c.pause,
	})
	if err != nil {
		pause = c.fails()
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "held deliveries of an endpoint cannot be released", "endpoint", d.EndpointID, "error", err, "again_in", pause)
		}
		return 0, pause, err
	}
	c.made(d, len(starts), now)
	r.intake.Released(starts)
	return len(starts), 0, nil
}
