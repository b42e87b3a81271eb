package explain

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

var (
	relative = regexp.MustCompile(`, in \d| ago\b`)
	dateless = regexp.MustCompile(`(^|\D )\d\d:\d\d`)
)

// requireLasting fails unless an explanation is true whenever it is read.
func requireLasting(t require.TestingT, e Explanation) {
	requireSentences(t, e)
	for _, text := range []string{e.Summary, e.Cause, e.Next, e.Remedy} {
		require.NotRegexp(t, relative, text, e.Code)
		require.NotRegexp(t, dateless, text, e.Code)
	}
}

// What the Web UI shows is read at any time after it was made.
func TestAnExplanationThatIsKept(t *testing.T) {
	t.Parallel()
	s := Situation{Delivery: retrying("http_503")}
	require.Equal(t, "Attempt 3 at 24 Nov 2026 12:03:44 UTC got 503 Service Unavailable; attempt 4 follows at 24 Nov 2026 12:05:10 UTC; "+
		"until 26 Nov 2026 12:00:00 UTC.", Delivery(s).Summary)
	s.Delivery.ClaimedUntil = noon()
	require.Equal(t, "Attempt 4 is under way and has no answer yet.", Delivery(s).Summary)
	s.SentAt = noon()
	require.Equal(t, "Attempt 4 was sent at 24 Nov 2026 12:04:08 UTC, and has no answer yet.", Delivery(s).Summary)
	s = Situation{Delivery: retrying("http_503")}
	s.Delivery.State, s.Delivery.CompletedAt = webhook.StateDelivered, noon()
	s.Delivery.LastOutcome.Status = 204
	require.Equal(t, "Delivered at 24 Nov 2026 12:04:08 UTC, with attempt 3, 60 min after it was accepted: 204 in 41 ms.", Delivery(s).Summary)
	require.Equal(t, "24 Nov 2026 12:04:08 UTC", At(noon()))
}

// A delivery says in which workflow it is, and whether that can still be looked at.
func TestWorkflowOfADelivery(t *testing.T) {
	t.Parallel()
	ref := webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID()}
	const shared, week = "fanout/evt_1/ab", 7 * day
	own := ref.WorkflowID(1)
	gone := "; Temporal keeps such a workflow for 7 days after its end, so it can no longer be looked at."
	for name, c := range map[string]struct {
		state    webhook.State
		workflow string
		ended    time.Duration
		want     string
	}{
		"own":                {webhook.StateRetrying, own, 0, "Its workflow is " + own + "."},
		"shared":             {webhook.StateRetrying, shared, 0, "Its workflow is " + shared + ", a shared workflow."},
		"delivered at once":  {webhook.StateDelivered, shared, time.Second, "Its workflow is " + shared + ", a shared workflow."},
		"delivered long ago": {webhook.StateDelivered, own, week, "Its workflow is " + own + gone},
		"an old dead letter": {webhook.StateDeadLettered, own, 2 * week, "Its workflow is " + own + "."},
		"one among others": {
			webhook.StateDeadLettered, "dead/" + shared + "/0", 2 * week,
			"Its workflow is dead/" + shared + "/0, which keeps dead letters of a shared workflow.",
		},
		"discarded":         {webhook.StateDiscarded, own, 2 * week, "Its workflow is " + own + gone},
		"held":              {webhook.StateHeld, "", 0, "It has no workflow while it is held; its release starts one."},
		"accepted":          {webhook.StatePending, "", 0, "Its workflow is still to be started."},
		"cancelled in hold": {webhook.StateCancelled, "", time.Second, "It had no workflow when it ended."},
	} {
		d := webhook.Delivery{Ref: ref, WorkflowID: c.workflow}
		if d.State = c.state; c.ended > 0 {
			d.CompletedAt = noon().Add(-c.ended)
		}
		require.Equal(t, c.want, Delivery(Situation{Now: noon(), Delivery: d, WorkflowsKept: week}).Workflow, name)
	}
	d := webhook.Delivery{Ref: ref, WorkflowID: own, CompletedAt: noon().Add(-100 * week)}
	d.State = webhook.StateDelivered
	require.Equal(t, "Its workflow is "+own+".", Delivery(Situation{Now: noon(), Delivery: d}).Workflow, "the retention is not known")
}

func TestWhyASignalIsIgnored(t *testing.T) {
	t.Parallel()
	require.Equal(t, "this workflow takes only cancel, retry-now and replay", UnknownSignal([]string{"cancel", "retry-now", "replay"}))
	require.Equal(t, "this workflow takes only cancel", UnknownSignal([]string{"cancel"}))
	require.Equal(t, "the delivery is retrying, and only a dead letter can be replayed by a signal; retry-now makes the next attempt at once",
		OnlyForDeadLetters(webhook.CommandReplay, webhook.StateRetrying))
	require.Equal(t, "the delivery is pending, and only a dead letter can be discarded; cancel ends an open delivery",
		OnlyForDeadLetters(webhook.CommandDiscard, webhook.StatePending))
	require.Equal(t, "the delivery is dead_lettered and has no next attempt; a dead letter takes replay and discard",
		OnlyForOpen(webhook.StateDeadLettered))
}
