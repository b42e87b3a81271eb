package workflows_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// setupAdmission is setup with an admission, for an endpoint that takes so many requests in a second.
func setupAdmission(t *testing.T, perSecond float64, config admission.Config) *bundle {
	t.Helper()
	b := setupReplay(t, perSecond)
	b.guarded = &config
	return b
}

// Deliveries that are not admitted at once each get a reservation, in the same workflow. A deferral is no attempt.
func TestDeferralsOfSeveral(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 0.5, admission.Config{})
	starts := b.acceptSome(t, 5)
	l := b.share(t, time.Hour, starts...)
	var waiting []webhook.Delivery
	l.run(after(time.Second, func(environment) {
		for _, start := range starts {
			if d := b.delivery(t, start.DeliveryID); d.State.Open() {
				waiting = append(waiting, d)
			}
		}
	}))
	require.Len(t, waiting, 4)
	for _, d := range waiting {
		require.Equal(t, webhook.StatePending, d.State)
		require.Equal(t, "rate", d.Reason)
		require.Zero(t, d.Attempts)
		require.False(t, d.DueAt.IsZero())
		require.Equal(t, l.id, d.WorkflowID)
	}
	turns := slices.DeleteFunc(l.timers, func(d time.Duration) bool { return d <= 10*time.Millisecond }) // those only end a task
	require.Len(t, turns, 4, "one each, and none is deferred twice")
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
	apart(t, b, starts, 1500*time.Millisecond)
	require.Zero(t, l.controller.Totals().InFlight)
	require.Zero(t, l.controller.Totals().Reserved)
}

// deferring defers a number of requests before it admits any.
type deferring struct {
	*admission.Controller

	left atomic.Int32
}

func (d *deferring) Acquire(ctx context.Context, r admission.Request) admission.Decision {
	if d.left.Add(-1) >= 0 {
		return admission.Decision{Wait: 20 * time.Second, Until: time.Now().Add(20 * time.Second), Reason: webhook.ReasonInFlight}
	}
	return d.Controller.Acquire(ctx, r)
}

// A member stays however often it is deferred: a workflow for each would cost the most when capacity is short.
func TestSeveralStayHoweverOftenTheyAreDeferred(t *testing.T) {
	t.Parallel()
	const times = 10
	b := setupAdmission(t, 100, admission.Config{})
	starts := b.acceptSome(t, width)
	b.change = func(l *life, c *activities.Config) {
		g := &deferring{Controller: l.controller}
		g.left.Store(times * width)
		c.Admission = g
	}
	l := b.share(t, time.Hour, starts...)
	l.run()
	require.GreaterOrEqual(t, len(l.timers), times)
	require.Zero(t, l.keepers.count())
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
}

// cutOff is the admission of a worker that does not reach the owner of the endpoint's lane. Another worker does, to which an ordinary
// activity goes.
type cutOff struct {
	*admission.Controller

	asked atomic.Int32
}

func (c *cutOff) Acquire(ctx context.Context, r admission.Request) admission.Decision {
	if c.asked.Add(1) <= passedAfter*int32(width) {
		return admission.Decision{Wait: 2 * time.Second, Until: time.Now().Add(2 * time.Second), Reason: webhook.ReasonNoOwner}
	}
	return c.Controller.Acquire(ctx, r)
}

const (
	passedAfter = 5
	width       = 3
)

// A worker that does not reach the owner of the endpoint's lane for long passes the attempts to any worker.
func TestAttemptsArePassedToAnotherWorker(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 100, admission.Config{})
	starts := b.acceptSome(t, width)
	b.change = func(l *life, c *activities.Config) { c.Admission = &cutOff{Controller: l.controller} }
	l := b.share(t, time.Hour, starts...)
	var ordinary []string
	l.run(func(env environment) {
		env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			ordinary = append(ordinary, info.ActivityType.Name)
		})
	})
	require.NotEmpty(t, ordinary)
	require.Equal(t, []string{"Attempts"}, slices.Compact(ordinary))
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 1)
	}
}

// So does the workflow of a single delivery.
func TestAttemptIsPassedToAnotherWorker(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 100, admission.Config{})
	b.change = func(l *life, c *activities.Config) {
		off := &cutOff{Controller: l.controller}
		off.asked.Store(passedAfter * (width - 1))
		c.Admission = off
	}
	l := b.deliver(t)
	var ordinary []string
	l.run(func(env environment) {
		env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			ordinary = append(ordinary, info.ActivityType.Name)
		})
	})
	require.Equal(t, []string{"Attempts"}, ordinary)
	require.Equal(t, 1, l.ends(webhook.StateDelivered, "").Attempts)
}

// apart requires that no two attempts were made closer to each other.
func apart(t *testing.T, b *bundle, starts []webhook.Start, least time.Duration) {
	t.Helper()
	var last time.Time
	for _, start := range starts {
		at := b.attempts(t, start.DeliveryID)[0].StartedAt
		if !last.IsZero() {
			require.GreaterOrEqual(t, at.Sub(last).Abs(), least)
		}
		last = at
	}
}

// Deliveries without a reservation before the horizon are held as rows, and the workflow ends without them. Each release starts a
// workflow in which they continue, and every delivery is made once.
func TestBacklogIsHeldAsRows(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 0.5, admission.Config{MaxReserved: 1}) // so that four may have a time, and no more
	starts := b.acceptSome(t, 8)
	l := b.share(t, time.Hour, starts...)
	l.run()
	var held []webhook.Start
	for _, start := range starts {
		d := b.delivery(t, start.DeliveryID)
		if d.State == webhook.StateDelivered {
			continue
		}
		require.Equal(t, webhook.StateHeld, d.State)
		require.Equal(t, webhook.ReasonBacklog, d.Reason)
		require.Empty(t, d.WorkflowID, "it has no workflow")
		require.Zero(t, d.Attempts)
		require.Zero(t, d.DueAt)
		held = append(held, start)
	}
	require.Len(t, held, 3)
	require.Zero(t, l.keepers.count())
	require.Zero(t, b.outboxRows(t))

	released := storetest.ReleaseNow(t, b.store, b.endpoint.ID)
	require.Len(t, released, 3)
	again := storetest.ReleaseNow(t, b.store, b.endpoint.ID)
	require.Empty(t, again, "they are on their way")

	second := b.share(t, time.Hour, released...)
	require.NotEqual(t, l.id, second.id)
	require.NotEqual(t, webhook.SharedWorkflowID(held), second.id, "released at another time it is another workflow")
	second.run()
	for _, start := range held {
		second.stayed(start, webhook.StateDelivered, 1)
	}
	require.Zero(t, b.outboxRows(t))
	require.Equal(t, 8, b.receiver.Count())
}

// In a workflow of its own a delivery waits for its reservation by one timer, and shows why.
func TestOwnWorkflowTakesItsTurn(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 0.1, admission.Config{})
	l := b.deliver(t)
	occupy(t, l)
	var shown string
	l.run(after(time.Second, func(environment) { shown = l.details() }))
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, d.Attempts)
	require.Len(t, l.timers, 1)
	require.Contains(t, shown, "**pending**")
	require.Contains(t, shown, "\n\nWaits for its turn; attempt 1 follows at ")
	require.Zero(t, l.controller.Totals().Reserved)
}

// other is a delivery of another endpoint.
func other(b *bundle) webhook.DeliveryID {
	return webhook.DeliveryIDOf(webhook.NewEventID(), b.endpoint.ID)
}

// occupy takes the endpoint's next reservation.
func occupy(t *testing.T, l *life) {
	t.Helper()
	pass := l.controller.Acquire(context.Background(), admission.Request{
		Endpoint: l.b.endpoint.ID, Delivery: other(l.b), Limits: admission.Limits{Rate: 0.1},
	}).Permit
	require.NotNil(t, pass)
	pass.Cancel()
}

// A delivery whose reservation would be after the give-up time does not get it.
func TestDeferredExpires(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 0.1, admission.Config{})
	start := b.accept(t, time.Time{})
	start.GiveUpAt = time.Now().Add(5 * time.Second).UTC().Truncate(time.Microsecond)
	l := b.begin(t, start, time.Hour)
	occupy(t, l)
	l.run()
	l.deadLettered(webhook.ReasonDeferredExpired)
	require.Zero(t, b.receiver.Count())
	require.Zero(t, l.controller.Totals().Reserved)
}

// A delivery with a workflow of its own that is held over a backlog is a row like the others.
func TestOwnWorkflowIsHeldAndReleased(t *testing.T) {
	t.Parallel()
	b := setupAdmission(t, 0.1, admission.Config{MaxReserved: 1})
	l := b.deliver(t)
	occupy(t, l)
	for range 5 { // later ones get no reservation
		l.controller.Acquire(t.Context(), admission.Request{Endpoint: b.endpoint.ID, Delivery: other(b), Limits: admission.Limits{Rate: 0.1}})
	}
	l.run()
	require.Equal(t, webhook.ReasonBacklog, l.isHeld().Reason)
	starts := storetest.ReleaseNow(t, b.store, b.endpoint.ID)
	require.Len(t, starts, 1)
	l.now = l.now.Add(2 * time.Minute)
	l.tryNow().run()
	d := l.ends(webhook.StateDelivered, "")
	require.Equal(t, 1, d.Attempts)
}

// A delivery that was held and is released goes on after an internal fault, or another process's claim, and does not wait
// until it is to be given up.
func TestReleasedGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *bundle, start webhook.Start){
		"the store is away": func(b *bundle, _ webhook.Start) { b.failNext(1) },
		"another process is sending it": func(b *bundle, start webhook.Start) {
			b.exec(t, `update deliveries set owner = gen_random_uuid(), owner_until = now() + interval '5 seconds' where id = $1`, start.DeliveryID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "default")
			start := b.accept(t, time.Time{})
			b.setState(t, start.EndpointID, webhook.EndpointPaused)
			b.share(t, time.Hour, start).run()
			b.setState(t, start.EndpointID, webhook.EndpointActive)
			d := b.delivery(t, start.DeliveryID)
			require.Equal(t, webhook.StateHeld, d.State)
			start.Resume = &d.Progress
			l := b.share(t, time.Hour, start)
			spoil(b, start)
			begun := l.now
			l.run(after(3*time.Second, func(environment) { b.expire(t, start) }))
			l.stayed(start, webhook.StateDelivered, 1)
			require.Less(t, l.now.Sub(begun), time.Minute)
		})
	}
}
