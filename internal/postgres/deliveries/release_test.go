package deliveries_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// releasing is a bundle whose releases are looked at.
type releasing struct{ *storetest.Bundle }

func setupReleases(t *testing.T) *releasing { t.Helper(); return &releasing{storetest.Setup(t)} }

// valueOf reads one value.
func valueOf[T any](t *testing.T, b *releasing, sql string) (v T) {
	t.Helper()
	require.NoError(t, b.Pool().QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// due are the releases whose turn has come.
func (b *releasing) due(t *testing.T) []webhook.DueRelease {
	t.Helper()
	var lanes []int
	for lane := range webhook.Lanes {
		lanes = append(lanes, lane)
	}
	due, err := b.DueReleases(t.Context(), lanes, 10)
	require.NoError(t, err)
	return due
}

// release is the subscriber's.
func (b *releasing) release(t *testing.T) webhook.Release {
	t.Helper()
	r, err := b.ReleaseOf(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	return r
}

func (b *releasing) change(t *testing.T, change webhook.ReleaseChange) webhook.Release {
	t.Helper()
	r, err := b.ChangeRelease(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, change)
	require.NoError(t, err)
	require.Equal(t, r, b.release(t))
	return r
}

// pausedWith holds so many deliveries of the paused subscriber.
func (b *releasing) pausedWith(t *testing.T, n int) (held []webhook.Start) {
	t.Helper()
	_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	for range n {
		held = append(held, b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused))
	}
	return held
}

func (b *releasing) resume(t *testing.T, rate int) webhook.Release {
	t.Helper()
	_, r, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, rate, "")
	require.NoError(t, err)
	return r
}

// settled makes the release older than a hold takes.
func (b *releasing) settled(t *testing.T) {
	t.Helper()
	b.Exec(t, `update releases set started_at = started_at - interval '1 minute'`)
}

// ended ends what was released.
func (b *releasing) ended(t *testing.T) {
	t.Helper()
	b.Exec(t, `update deliveries d set state = 3 where exists (select from outbox o where o.delivery_id = d.id)`)
	b.Exec(t, `delete from outbox`)
}

// A resume releases what is held then, and counts it; the release ends when nothing is held any more.
func TestReleaseAfterAResume(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	require.Equal(t, webhook.ReleaseDone, b.release(t).State)
	b.pausedWith(t, 5)
	require.Equal(t, webhook.ReleaseStopped, b.release(t).State)
	r := b.resume(t, 0)
	require.Equal(t, webhook.ReleaseRunning, r.State)
	require.Nil(t, r.Total)
	turn := b.TurnOf(t, webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: 3})
	require.Len(t, turn, 3)
	r = b.release(t)
	require.Equal(t, []int64{5, 3, 2}, []int64{*r.Total, r.Released, *r.Remaining()})
	again := b.TurnOf(t, webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: 3})
	require.Len(t, again, 2)

	// One of them is held once more: it is one more to be released.
	step := storetest.StepOf(again[0], 2, webhook.StateHeld)
	step.WorkflowID, step.Reason = storetest.NoWorkflow, webhook.ReasonBacklog
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.EqualValues(t, 1, *new(b.release(t)).Remaining())
	require.Equal(t, []webhook.DeliveryID{step.DeliveryID}, b.Releasable(t))
	b.settled(t)
	require.Empty(t, b.Releasable(t))
	require.Equal(t, webhook.ReleaseRunning, b.release(t).State, "they are held until their first step")
	b.ended(t)
	require.Empty(t, b.Releasable(t))
	r = b.release(t)
	require.Equal(t, webhook.ReleaseDone, r.State)
	require.EqualValues(t, 6, r.Released)
	require.Zero(t, *r.Remaining())
	require.Empty(t, b.due(t))

	// A hold of Everpost's own begins another one, of which nothing is counted.
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	r = b.release(t)
	require.Equal(t, webhook.ReleaseRunning, r.State)
	require.Zero(t, r.Released)
	require.Nil(t, r.Total)
	require.Len(t, b.Releasable(t), 1)
	require.EqualValues(t, 1, b.release(t).Released)
}

// What is released after a resume keeps to its rate; the others do not wait for that.
func TestReleaseKeepsItsRate(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	held := b.pausedWith(t, 5)
	b.resume(t, 60)
	later := b.AcceptOne(t)
	b.Exec(t, `update releases set until_id = $1`, held[4].DeliveryID)
	if bytes.Compare(later.DeliveryID[:], held[4].DeliveryID[:]) < 0 { // of the same millisecond
		b.Exec(t, `update releases set until_id = $1`, later.DeliveryID)
		later = held[4]
	} else {
		b.Hold(t, later, storetest.NoWorkflow, webhook.ReasonBacklog)
	}
	turn := b.TurnOf(t, webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: 10})
	require.Contains(t, storetest.StartIDs(turn), later.DeliveryID)
	require.Len(t, turn, 2, "one of the set")
	require.EqualValues(t, 1, b.release(t).Released)
	require.Empty(t, b.due(t), "not before a second")
}

// A release that is stopped keeps its set; what is held later is released.
func TestReleaseIsStopped(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	held := b.pausedWith(t, 3)
	b.resume(t, 0)
	require.Len(t, b.Released(t, 1), 1)
	r := b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseStopped)})
	require.Equal(t, webhook.ReleaseStopped, r.State)
	d, err := b.Delivery(t.Context(), "acme", held[2].DeliveryID)
	require.NoError(t, err)
	require.True(t, r.Stops(&d))
	require.Empty(t, b.Releasable(t))
	require.Empty(t, b.due(t), "there is nothing to do")

	require.Eventually(t, func() bool { return time.Since(r.Until.Time()) > 2*time.Millisecond }, time.Second, time.Millisecond)
	later := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.Len(t, b.due(t), 1)
	require.Equal(t, []webhook.DeliveryID{later.DeliveryID}, b.Releasable(t))
	r = b.release(t)
	require.Equal(t, webhook.ReleaseStopped, r.State)
	require.Equal(t, []int64{3, 1, 2}, []int64{*r.Total, r.Released, *r.Remaining()})
	b.ended(t)

	r = b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseRunning), Rate: new(30)})
	require.Equal(t, 30, r.Rate)
	require.Equal(t, 0, b.change(t, webhook.ReleaseChange{Rate: new(0)}).Rate)
	require.Len(t, b.Releasable(t), 2)
}

// A change of a release begins one of what Everpost has held by itself; nothing begins where nothing is held, or the endpoint is not active.
func TestReleaseIsChanged(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	audits := func() int {
		return valueOf[int](t, b, `select count(*) from audit_log where action = 'endpoint.release'`)
	}
	stop := webhook.ReleaseChange{State: new(webhook.ReleaseStopped)}
	require.Equal(t, webhook.ReleaseDone, b.change(t, stop).State)
	require.Zero(t, audits())
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	require.True(t, b.change(t, webhook.ReleaseChange{State: new(webhook.ReleaseRunning)}).Until.IsZero(), "it is running")
	require.False(t, b.change(t, stop).Until.IsZero())
	require.Equal(t, 1, audits())
	require.Empty(t, b.Releasable(t))
	b.pausedWith(t, 0)
	_, err := b.ChangeRelease(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, stop)
	require.Equal(t, webhook.CodeConflict, webhook.CodeOf(err))
	_, err = b.ChangeRelease(t.Context(), storetest.TestActor(), "other", b.Subscriber.ID, stop)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, err = b.ReleaseOf(t.Context(), "other", b.Subscriber.ID)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	require.Equal(t, webhook.ReleaseRunning, b.resume(t, 0).State)
	require.Len(t, b.Releasable(t), 1)
}

// A pause stops a release, and the next resume releases what is held then.
func TestReleaseOverAPause(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.pausedWith(t, 2)
	b.resume(t, 0)
	require.Len(t, b.Released(t, 1), 1)
	b.ended(t)
	b.pausedWith(t, 2)
	require.Equal(t, webhook.ReleaseStopped, b.release(t).State)
	require.Empty(t, b.Released(t, 10))
	r := b.resume(t, 0)
	require.Zero(t, r.Released)
	require.Len(t, b.Released(t, 10), 3)
	require.EqualValues(t, 3, *new(b.release(t)).Total)
}

// A hold that is being stored while a turn finds nothing makes the release due once more.
func TestAHoldIsNotOverlooked(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonBacklog)
	b.Releasable(t)
	b.ended(t)
	b.settled(t)
	start := b.AcceptOne(t)
	tx, err := b.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from releases for update`) // a turn that has begun
	require.NoError(t, err)
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		b.Hold(t, start, storetest.NoWorkflow, webhook.ReasonBacklog)
	}()
	require.Eventually(t, func() bool {
		return valueOf[bool](t, b, `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%into releases%')`)
	}, storetest.Eventually, storetest.Poll)
	_, err = tx.Exec(t.Context(), `update releases set state = 2, next_at = null`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	<-stored
	require.Len(t, b.due(t), 1)
	require.Len(t, b.Releasable(t), 1)
}

// Deliveries are released one of each tenant in turn, and those of other lanes not at all.
func TestDueReleases(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	b.Exec(t, `insert into tenants (id, name) values ('other', '')`)
	add := func(tenant string, seconds int) webhook.EndpointID {
		e := b.AddEndpoint(t, "none")
		b.Exec(t, `update endpoints set tenant_id = $2 where id = $1`, e.ID, tenant)
		b.Exec(t, `insert into releases (endpoint_id, tenant_id, next_at) values ($1, $2, now() - $3 * interval '1 second')`, e.ID, tenant, seconds)
		return e.ID
	}
	first, second, third, other := add("acme", 30), add("acme", 20), add("acme", 10), add("other", 5)
	add("acme", -10)
	ids := func() (ids []webhook.EndpointID) {
		for _, d := range b.due(t) {
			ids = append(ids, d.EndpointID)
		}
		return ids
	}
	require.Equal(t, []webhook.EndpointID{first, other, second, third}, ids())
	found, err := b.DueReleases(t.Context(), []int{webhook.LaneOf(other)}, 1)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	require.Equal(t, webhook.LaneOf(other), webhook.LaneOf(found[0].EndpointID))
	var later []webhook.PostponedRelease
	for _, d := range b.due(t) {
		if d.EndpointID == first || d.EndpointID == other {
			later = append(later, webhook.PostponedRelease{EndpointID: d.EndpointID, DueAt: d.DueAt, Pause: time.Minute})
		}
	}
	require.NoError(t, b.Postpone(t.Context(), later))
	require.Equal(t, []webhook.EndpointID{second, third}, ids())
}

// However many releases of one tenant are due, another's is among the next ones; of many tenants each has its turn.
func TestDueReleasesOfManyTenants(t *testing.T) {
	t.Parallel()
	b := setupReleases(t)
	const large, tenants = 400, 3*deliveries.TenantsOfLane + 5
	add := func(tenant string, n int) {
		t.Helper()
		b.Exec(t, `insert into tenants (id, name) values ($1, '') on conflict do nothing`, tenant)
		// Of one lane: the last byte of the id is the lane.
		b.Exec(t, `
			with added as (
				insert into endpoints (id, tenant_id, url, event_types, timeout_ns, max_in_flight, rate_limit, circuit_breaker, auto_disable, auto_replay,
					signature, version)
				select (left(gen_random_uuid()::text, 34) || '07')::uuid, $1, url, event_types, timeout_ns, max_in_flight, rate_limit, circuit_breaker,
					auto_disable, auto_replay, signature, version
				from endpoints, generate_series(1, $2::int) where id = $3 returning id)
			insert into releases (endpoint_id, tenant_id, next_at) select id, $1, now() - interval '1 hour' from added`, tenant, n, b.Subscriber.ID)
	}
	due := func() map[string]int {
		t.Helper()
		found, err := b.DueReleases(t.Context(), []int{7}, 200)
		require.NoError(t, err)
		of := map[string]int{}
		for _, d := range found {
			of[d.TenantID]++
		}
		return of
	}
	add("large", large)
	require.Equal(t, map[string]int{"large": 200}, due())
	add("quiet", 1)
	require.Equal(t, 1, due()["quiet"])

	b.Exec(t, `delete from releases`)
	for i := range tenants {
		add(fmt.Sprintf("t%03d", i), 1)
	}
	seen := map[string]int{}
	for range 4 {
		for tenant, n := range due() {
			seen[tenant] += n
		}
	}
	require.Len(t, seen, tenants)
}
