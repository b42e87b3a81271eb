package deliveries_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// Whatever a delivery is held by, it goes on when its endpoint is active or deleted, unless something else is about to release it.
func TestReleasable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   string // of the delivery
		endpoint string
		released bool
	}{
		"held by nobody":                         {released: true},
		"held by its own workflow":               {change: `workflow_id = 'delivery/it'`, released: true},
		"held by a shared workflow that is gone": {change: `workflow_id = 'fanout/it'`, released: true},
		"because its endpoint was disabled":      {change: `reason = 'endpoint_disabled'`, released: true},
		"an endpoint that was never changed":     {endpoint: `updated_at = now() - interval '90 days'`, released: true},
		"its endpoint is paused":                 {endpoint: `state = 1`},
		"its endpoint is disabled":               {endpoint: `state = 2`},
		"its endpoint is deleted":                {endpoint: `deleted_at = now()`, released: true},
		"a backlog":                              {change: `reason = 'backlog'`, released: true},
		"an internal fault":                      {change: `reason = 'internal'`, released: true},
		"to be cancelled":                        {change: `command = 1`},
		"being sent":                             {change: `owner = gen_random_uuid(), owner_until = now() + interval '1 minute'`},
		"being recorded, maybe":                  {change: `owner = gen_random_uuid(), owner_until = now() - interval '110 seconds'`},
		"was being sent":                         {change: `owner = gen_random_uuid(), owner_until = now() - interval '121 seconds'`, released: true},
		"not held":                               {change: `state = 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			if c.change != "" {
				b.Exec(t, `update deliveries set `+c.change)
			}
			if c.endpoint != "" {
				b.Exec(t, `update endpoints set `+c.endpoint)
			}
			want := []webhook.DeliveryID(nil)
			if c.released {
				want = append(want, start.DeliveryID)
			}
			require.Equal(t, want, b.Releasable(t))
			require.Empty(t, b.Releasable(t), "it is on its way")
		})
	}
}

// What a release has before it is its own to release, at its pace, be it paused; what it has
// passed over is not, and neither is what one that has run out waits for.
func TestReleasableDuringAReleaseReplay(t *testing.T) {
	t.Parallel()
	const first, later = 0, 1
	for name, c := range map[string]struct {
		change string // of the release
		want   []int
	}{
		"it has both before it":                  {"created_at = now() + interval '1 second'", nil},
		"it is paused":                           {"created_at = now() + interval '1 second', state = 1", nil},
		"it was made before the second was":      {"created_at = $1", []int{later}},
		"it has passed over the first":           {"created_at = now() + interval '1 second', cursor = $2", []int{first}},
		"it has run out and waits for outcomes":  {"exhausted = true", []int{first, later}},
		"it has run out and is paused":           {"exhausted = true, state = 1", []int{first, later}},
		"it has ended":                           {"state = 2", []int{first, later}},
		"it was cancelled":                       {"state = 3", []int{first, later}},
		"it is of another source":                {"source = 1", []int{first, later}},
		"it is of some of them":                  {"event_type = 'order.paid'", []int{first, later}},
		"it is of all of the tenant's endpoints": {"created_at = now() + interval '1 second', endpoint_id = null", nil},
		"it is of another endpoint":              {"endpoint_id = gen_random_uuid()", []int{first, later}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			starts := []webhook.Start{b.AcceptOne(t)}
			require.Eventually(t, func() bool { // ids tell times apart by the millisecond
				return time.Since(starts[first].EventID.Time()) > 2*time.Millisecond
			}, time.Second, time.Millisecond)
			starts = append(starts, b.AcceptOne(t))
			for _, start := range starts {
				b.Hold(t, start, storetest.NoWorkflow, webhook.ReasonPaused)
			}
			b.ReleaseAllHeld(t)
			// Each row names both arguments, so that PostgreSQL knows their types.
			b.Exec(t, `update replays set `+c.change+` where $1::timestamptz is not null and $2::uuid is not null`,
				starts[first].EventID.Time(), starts[first].DeliveryID)
			var want []webhook.DeliveryID
			for _, i := range c.want {
				want = append(want, starts[i].DeliveryID)
			}
			require.Equal(t, want, b.Releasable(t))
		})
	}
}

// A step or a claim that is refused ends no outbox row: it may be all that is left of a release.
func TestWhatIsRefusedLeavesTheRelease(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]func(*testing.T, *storetest.Bundle, webhook.Start){
		"a step": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			status, err := b.RecordStep(t.Context(), storetest.StepOf(start, 1, webhook.StateRetrying))
			require.NoError(t, err)
			require.Equal(t, webhook.StateHeld, status.State)
		},
		"a claim": func(t *testing.T, b *storetest.Bundle, start webhook.Start) {
			t.Helper()
			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 0, "me", time.Minute))
			require.NoError(t, err)
			require.False(t, begun.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			require.Zero(t, b.Count(t, "outbox"))
			require.Len(t, b.Releasable(t), 1)
			require.Equal(t, 1, b.Count(t, "outbox"))
			refused(t, b, start) // by a workflow that knows of neither
			require.Equal(t, 1, b.Count(t, "outbox"), "released, and to be started")

			begun, err := b.Claim(t.Context(), storetest.ClaimOf(start, 1, "me", time.Minute))
			require.NoError(t, err)
			require.True(t, begun.Granted)
			require.Zero(t, b.Count(t, "outbox"), "a claim is a first write")
		})
	}
}

// A release that is committed while a step waits for its lock is not seen by that: the relay
// finds out that the delivery has gone on.
func TestTheRelayEndsWhatHasGoneOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state webhook.State
		gone  bool
	}{
		"it was sent, and waits":  {webhook.StateRetrying, true},
		"it was delivered":        {webhook.StateDelivered, true},
		"it was held once more":   {webhook.StateHeld, false},
		"it is a dead letter now": {webhook.StateDeadLettered, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			tx, err := b.Pool().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			held, err := deliveries.LockDeliveries(t.Context(), tx, [][16]byte{start.DeliveryID}, "d.state = 2")
			require.NoError(t, err)
			_, err = deliveries.Release(t.Context(), tx, b.Now(), held, 0)
			require.NoError(t, err)
			step := storetest.StepOf(start, 2, c.state)
			if c.state == webhook.StateHeld {
				step.WorkflowID = storetest.NoWorkflow
			}
			recorded := make(chan error, 1)
			go func() {
				_, err := b.RecordStep(t.Context(), step)
				recorded <- err
			}()
			b.WaitForALock(t)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-recorded)
			require.Equal(t, 1, b.Count(t, "outbox"))

			left, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			if c.gone {
				require.Empty(t, left)
				require.Zero(t, b.Count(t, "outbox"))
				return
			}
			require.Len(t, left, 1, "it was released before that, or after: once more does no harm")
			require.Equal(t, 2, left[0].Resume.Seq)
		})
	}
}

// A resume that is repeated releases what is held all the same, if no release that is running
// is about to.
func TestResumeIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string // of the release of the first resume
		again  bool
	}{
		"it has run out":          {"exhausted = true", true},
		"it has ended":            {"state = 2", true},
		"it is paused":            {"state = 1", true},
		"it is to be paused":      {"command = 1", true},
		"it has not come there":   {"rate = 1", false},
		"it has passed it over":   {"cursor = 'ffffffff-ffff-ffff-ffff-ffffffffffff'", true},
		"it is of something else": {"endpoint_id = gen_random_uuid()", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			resume := func() webhook.Replay {
				t.Helper()
				e, r, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 60)
				require.NoError(t, err)
				require.Equal(t, webhook.EndpointActive, e.State)
				return r
			}
			require.Zero(t, resume().ID, "nothing is held")
			_, err := b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID)
			require.NoError(t, err)
			start := b.Hold(t, b.AcceptOne(t), storetest.NoWorkflow, webhook.ReasonPaused)
			first := resume()
			require.NotZero(t, first.ID)
			b.Exec(t, `update replays set `+c.change)
			second := resume()
			require.Equal(t, c.again, !second.ID.IsZero())
			if !c.again {
				return
			}
			require.NotEqual(t, first.ID, second.ID)
			status, err := b.ReleaseReplay(t.Context(), webhook.ReplayBatch{ID: second.ID, Seq: 1, Limit: 10, Now: time.Now()})
			require.NoError(t, err)
			require.Equal(t, int64(1), status.Released)
			left, err := b.TakeStarts(t.Context(), "test", 10)
			require.NoError(t, err)
			require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, storetest.StartIDs(left), "at once, and not when the relay is patient")
		})
	}
}

func TestPausedReleases(t *testing.T) {
	t.Parallel()
	const first, later = 0, 1
	for name, c := range map[string]struct {
		change  string // of the release
		covered []int
	}{
		"it is running":                          {"created_at = now() + interval '1 second'", nil},
		"it is paused":                           {"created_at = now() + interval '1 second', state = 1", []int{first, later}},
		"it was made before the second was":      {"state = 1, created_at = $1", []int{first}},
		"it has passed over the first":           {"created_at = now() + interval '1 second', state = 1, cursor = $2", []int{later}},
		"it has run out and is paused":           {"exhausted = true, state = 1", nil},
		"it was cancelled":                       {"state = 3", nil},
		"it is of another source":                {"source = 1, state = 1", nil},
		"it is of some of them":                  {"event_type = 'order.paid', state = 1", nil},
		"it is of all of the tenant's endpoints": {"created_at = now() + interval '1 second', endpoint_id = null, state = 1", []int{first, later}},
		"it is of another endpoint":              {"created_at = now() + interval '1 second', endpoint_id = gen_random_uuid(), state = 1", nil},
		"it is of another tenant":                {"tenant_id = 'another', state = 1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.Setup(t)
			b.Exec(t, `insert into tenants (id, name) values ('another', '')`)
			starts := []webhook.Start{b.AcceptOne(t)}
			require.Eventually(t, func() bool {
				return time.Since(starts[first].EventID.Time()) > 2*time.Millisecond
			}, time.Second, time.Millisecond)
			starts = append(starts, b.AcceptOne(t))
			for _, start := range starts {
				b.Hold(t, start, storetest.NoWorkflow, webhook.ReasonPaused)
			}
			b.ReleaseAllHeld(t)
			b.Exec(t, `update replays set `+c.change+` where $1::timestamptz is not null and $2::uuid is not null`,
				starts[first].EventID.Time(), starts[first].DeliveryID)
			paused, err := b.PausedReleases(t.Context(), starts[first].TenantID)
			require.NoError(t, err)
			var covered []int
			for i, start := range starts {
				d, err := b.Delivery(t.Context(), start.TenantID, start.DeliveryID)
				require.NoError(t, err)
				for _, release := range paused {
					if release.Covers(&d) {
						covered = append(covered, i)
					}
				}
			}
			require.Equal(t, c.covered, covered)
		})
	}
}
