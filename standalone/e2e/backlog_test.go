package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manyBehind is more than admission gives a reservation to at an endpoint that has not answered
// yet (100): the others are held.
const manyBehind = 150

// reservedWithin is for a delivery with a reservation when the receiver answers again: four of an endpoint may be as far away as its latency
// makes them, which may be a minute after it has hung for 30 s.
const reservedWithin = 90 * time.Second

// busy is an endpoint with two slots and a timeout that is long enough to hang for a test.
func busy(kind string, further fieldsOf) fieldsOf {
	fields := fieldsOf{"event_types": []string{kind}, "max_in_flight": 2, "timeout": "30s"}
	maps.Copy(fields, further)
	return fields
}

// postMany posts n events of a type to which one endpoint subscribes, as batches, and returns their
// deliveries in order.
func (b *bundle) postMany(kind string, n int) []delivery {
	b.t.Helper()
	const most = 100
	var all []delivery
	for len(all) < n {
		var bodies []string
		for i := range min(most, n-len(all)) {
			bodies = append(bodies, fmt.Sprintf(`{"type":%q,"payload":%d}`, kind, len(all)+i))
		}
		var made batch
		b.ask(http.StatusAccepted, http.MethodPost, "/events/batch", batchBody(bodies...), &made)
		for _, e := range made.Events {
			require.Len(b.t, e.Deliveries, 1)
			all = append(all, e.Deliveries[0])
			all[len(all)-1].EventID = e.ID
		}
	}
	return all
}

// waitAllWait waits until all deliveries of an endpoint wait and say why, but for those
// whose request is under way, and returns them.
func (b *bundle) waitAllWait(endpointID string, underWay int) []delivery {
	b.t.Helper()
	var all []delivery
	eventually(contextFor(b.t, patience), b.t, func() string {
		all = b.listDeliveries(url.Values{"endpoint_id": {endpointID}})
		silent := 0
		for _, d := range all {
			if d.Reason == nil {
				silent++
			}
		}
		if silent > underWay {
			return fmt.Sprintf("%d of %d do not say why they wait", silent, len(all))
		}
		return ""
	})
	return all
}

// waitHeldInStore waits until n deliveries of the endpoint are held and no workflow
// carries them, and returns those.
func (b *bundle) waitHeldInStore(endpointID string, n int) []delivery {
	b.t.Helper()
	var held []delivery
	eventually(contextFor(b.t, patience), b.t, func() string {
		held = slices.DeleteFunc(b.listDeliveries(url.Values{"endpoint_id": {endpointID}, "state": {"held"}}),
			func(d delivery) bool { return d.WorkflowID != "" })
		if len(held) < n {
			return fmt.Sprintf("%d are held by the store alone, not %d", len(held), n)
		}
		return ""
	})
	for _, d := range held {
		require.Equal(b.t, "backlog", text(d.Reason))
		require.Zero(b.t, d.Attempts)
		require.True(b.t, d.NextAttemptAt.IsZero())
		require.Empty(b.t, d.WorkflowURL)
	}
	return held
}

// requireEachOnce waits until the deliveries are delivered, and checks that each took one
// attempt and reached the receiver once, over no more connections than there are slots. Each process has connections of its own.
func (b *bundle) requireEachOnce(ctx context.Context, r *receiver, all []delivery, places int) {
	b.t.Helper()
	for _, d := range all {
		require.Equal(b.t, 1, b.waitStateIn(ctx, d.ID, "delivered").Attempts, "a deferral is no attempt")
	}
	times, connections := map[string]int{}, map[string]bool{}
	for _, request := range r.Requests() {
		times[request.WebhookID()]++
		connections[request.RemoteAddr] = true
	}
	for _, d := range all {
		require.Equal(b.t, 1, times[d.EventID], "event %s", d.EventID)
	}
	require.Len(b.t, times, len(all))
	require.LessOrEqual(b.t, len(connections), places*b.in.senders())
}

// Deliveries that wait for a receiver that hangs use no permit and no attempt: each has a reservation or is held, and its reason says so.
func TestBacklogOfAHangingReceiver(t *testing.T) {
	t.Parallel()
	b, hanging, well := setup(t), newReceiver(t), newReceiver(t)
	hanging.Hold()
	slow := b.endpoint(hanging, "/hang", busy("a.slow", nil))
	b.endpoint(well, "/well", fieldsOf{"event_types": []string{"a.quick"}})
	backlog := b.postMany("a.slow", 60)
	require.NoError(t, hanging.WaitHeld(contextFor(t, patience), 2))

	_, beside := b.postOne("a.quick", `{}`)
	beside = b.waitState(beside.ID, "delivered")
	require.Less(t, beside.CompletedAt.Sub(beside.CreatedAt.Time), atOnceIs)

	waiting := 0
	for _, d := range b.waitAllWait(slow.ID, 2) {
		require.Zero(t, d.Attempts)
		if d.Reason == nil {
			continue // it is under way
		}
		waiting++
		switch d.State {
		case "pending":
			require.Contains(t, b.in.waitReasons(), *d.Reason)
			require.False(t, d.NextAttemptAt.IsZero())
		case "held":
			require.Equal(t, "backlog", *d.Reason)
			require.True(t, d.NextAttemptAt.IsZero())
		default:
			require.Fail(t, "waits in another state", d.State)
		}
	}
	require.Equal(t, len(backlog)-2, waiting)
	require.Equal(t, 2, hanging.Count(), "two places, two requests")

	hanging.Release()
	b.requireEachOnce(contextFor(t, reservedWithin), hanging, backlog, 2)
}

// A backlog is rows: it is there again after kill -9 and comes to its end.
func TestBacklogSurvivesAKill(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, nil)
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	r.Hold()
	// The claims of the requests under way run out 5 s after their deadline.
	ep := b.endpoint(r, "/hang", busy("a.slow", fieldsOf{"timeout": "5s"}))
	backlog := b.postMany("a.slow", manyBehind)
	b.waitHeldInStore(ep.ID, manyBehind/5)
	in.kill9()
	before := r.Count()
	r.Release()

	in.restart(t)
	b.client = in.client()
	ctx := contextFor(t, longRecovery)
	for _, d := range backlog {
		b.waitStateIn(ctx, d.ID, "delivered")
	}
	after := map[string]int{}
	for _, request := range r.Requests()[before:] {
		after[request.WebhookID()]++
	}
	require.Len(t, after, len(backlog), "none was answered before")
	for id, times := range after {
		require.Equal(t, 1, times, "event %s", id)
	}
}

// A held delivery without a workflow takes commands: a workflow is started for each.
func TestCommandsToHeldDeliveries(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Hold()
	ep := b.endpoint(r, "/hang", busy("a.slow", nil))
	b.postMany("a.slow", manyBehind)
	held := b.waitHeldInStore(ep.ID, 3)
	cancelled, tried, moved := held[0], held[1], held[2]

	b.command(http.StatusAccepted, cancelled.ID, "cancel", fieldsOf{"reason": "not any more"})
	b.command(http.StatusAccepted, tried.ID, "retry", nil)
	later := moved.GiveUpAt.Add(-time.Hour)
	b.command(http.StatusAccepted, moved.ID, "reschedule", fieldsOf{"at": at(later)})
	got := b.waitState(cancelled.ID, "cancelled")
	require.Equal(t, "not any more", text(got.Reason))
	require.Zero(t, got.Attempts)
	eventually(contextFor(t, patience), t, func() string {
		d := b.delivery(moved.ID)
		if d.NextAttemptAt.IsZero() || !d.NextAttemptAt.Equal(later) {
			return fmt.Sprintf("its next attempt, %v, has not moved", d.NextAttemptAt)
		}
		return ""
	})
	require.Equal(t, 2, r.Count(), "a retry by hand waits for a place, too")

	r.Release()
	require.Equal(t, 1, b.waitStateIn(contextFor(t, reservedWithin), tried.ID, "delivered").Attempts)
	require.Empty(t, r.of(cancelled.EventID))
	require.Empty(t, r.of(moved.EventID))
}

// A held delivery is given up at its give-up time, also without a workflow.
func TestHeldUntilGivenUp(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Hold()
	policy := quickly()
	policy["give_up_after"] = "4s"
	ep := b.endpoint(r, "/hang", busy("a.slow", fieldsOf{"retry_policy": policy}))
	b.postMany("a.slow", manyBehind)
	held := b.waitHeldInStore(ep.ID, 1)[0]
	d := b.waitState(held.ID, "dead_lettered")
	require.Equal(t, "held_expired", text(d.Reason))
	require.Zero(t, d.Attempts)
	b.requireExplained(d, "expired", `Given up at `+clock+`, \d+ s after it was accepted: it waited until the give-up time`+kept,
		"more deliveries waited for it than it took")

	r.Release()
	eventually(contextFor(t, longRecovery), t, func() string { // the replay would wait behind the reservations of those that have not ended
		if open := b.listDeliveries(url.Values{"endpoint_id": {ep.ID}, "state": {"pending", "retrying", "held"}}); len(open) > 0 {
			return fmt.Sprintf("%d have not ended", len(open))
		}
		return ""
	})
	b.ask(http.StatusOK, http.MethodPatch, "/endpoints/"+ep.ID, fieldsOf{"retry_policy": quickly()}, nil) // for the next run to have time
	b.command(http.StatusAccepted, d.ID, "replay", nil)
	require.Equal(t, 1, b.waitState(d.ID, "delivered").Attempts)
}
