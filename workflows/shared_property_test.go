package workflows_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// sharedActs are what people, the relay and faults may do to a shared workflow and to
// one of its deliveries.
func sharedActs() map[string]func(l *life, of webhook.Start, env environment) {
	byAPI := func(c webhook.Command, name string) func(*life, webhook.Start, environment) {
		return func(l *life, of webhook.Start, env environment) {
			if pending, taken := l.b.tryCommand(l.t, of.DeliveryID, c, "by the API"); taken {
				env.SignalWorkflow(name, workflows.CommandSignal{CommandID: pending.ID, Reason: "by the API", DeliveryID: of.DeliveryID})
			}
		}
	}
	byHand := func(name string) func(*life, webhook.Start, environment) {
		return func(_ *life, of webhook.Start, env environment) {
			env.SignalWorkflow(name, workflows.CommandSignal{DeliveryID: of.DeliveryID})
		}
	}
	return map[string]func(l *life, of webhook.Start, env environment){
		"cancel":         byAPI(webhook.CommandCancel, workflows.SignalCancel),
		"retry":          byAPI(webhook.CommandRetry, workflows.SignalRetryNow),
		"cancel by hand": byHand(workflows.SignalCancel),
		"retry by hand":  byHand(workflows.SignalRetryNow),
		"replay by hand": byHand(workflows.SignalReplay),
		"stored cancel": func(l *life, of webhook.Start, _ environment) {
			l.b.tryCommand(l.t, of.DeliveryID, webhook.CommandCancel, "its signal was lost")
		},
		"replay": func(l *life, of webhook.Start, _ environment) {
			l.b.tryCommand(l.t, of.DeliveryID, webhook.CommandReplay, "")
		},
		"discard by hand": byHand(workflows.SignalDiscard),
		"reschedule by hand": func(_ *life, of webhook.Start, env environment) {
			env.SignalWorkflow(workflows.SignalReschedule, workflows.CommandSignal{DeliveryID: of.DeliveryID, At: env.Now().Add(10 * time.Second)})
		},
		"all by hand":     func(_ *life, _ webhook.Start, env environment) { env.SignalWorkflow(workflows.SignalRetryNow, nil) },
		"cancel workflow": func(_ *life, _ webhook.Start, env environment) { env.CancelWorkflow() },
		"store is away":   func(l *life, _ webhook.Start, _ environment) { l.b.failNext(3) },
		"store is ahead": func(l *life, of webhook.Start, _ environment) {
			l.b.exec(l.t, `update deliveries set seq = seq + 1 where id = $1 and state < 3`, of.DeliveryID)
		},
		"taken over": func(l *life, of webhook.Start, _ environment) { // by its own, which the relay has started
			// One that is held has let go of it: no workflow carries it until it is released.
			l.b.exec(l.t, `update deliveries set seq = seq + 1, workflow_id = $2 where id = $1 and state < 2`, of.DeliveryID, of.WorkflowID())
		},
		"sent elsewhere": func(l *life, of webhook.Start, _ environment) {
			l.b.exec(l.t, `update deliveries set owner = gen_random_uuid(), owner_until = now() + interval '300 milliseconds'
				where id = $1 and state < 3 and owner is null`, of.DeliveryID)
		},
		"long history": func(_ *life, _ webhook.Start, env environment) { env.SetCurrentHistoryLength(1000) },
		"Temporal is away": func(l *life, _ webhook.Start, _ environment) {
			fail := failing(2)
			l.keepers.failing(func(activities.DeliveryState) error { return fail() })
		},
		"paused": func(l *life, _ webhook.Start, _ environment) {
			l.b.setState(l.t, l.b.endpoint.ID, webhook.EndpointPaused)
		},
		"resumed": func(l *life, _ webhook.Start, _ environment) {
			l.b.setState(l.t, l.b.endpoint.ID, webhook.EndpointActive)
		},
	}
}

// Whatever happens, each delivery ends in the shared workflow, or is kept as a dead letter by the workflow that the store names, or goes on in
// its own that has taken it over. Nothing is sent twice, and all deliveries end.
func TestSeveralDeliveriesEnd(t *testing.T) {
	t.Parallel()
	policy, _ := retry.Lookup("fast")
	b := setupPolicy(t, policy)
	possible := sharedActs()
	names := make([]string, 0, len(possible))
	for name := range possible {
		names = append(names, name)
	}
	slices.Sort(names) // rapid repeats a failure from its draws: the order must not be the map's
	rapid.Check(t, func(t *rapid.T) {
		b.failNext(0)
		b.setState(t, b.endpoint.ID, webhook.EndpointActive)
		starts := b.acceptSome(t, rapid.IntRange(1, 4).Draw(t, "deliveries"))
		for i, start := range starts {
			b.receiver.Script(start.EventID.String(), rapid.SliceOfN(rapid.Custom(drawStep), 0, 8).Draw(t, "answers of "+strconv.Itoa(i))...)
		}
		fastWait := rapid.SampledFrom([]time.Duration{time.Nanosecond, time.Hour}).Draw(t, "fast wait")
		l := b.share(t, fastWait, starts...)
		taken := false                          // by an own workflow, as the store says
		for again := 0; l.next != ""; again++ { // once more for each time that its history gets long
			require.Less(t, again, 100, "it never ends")
			var scripts []func(environment)
			for range rapid.IntRange(0, max(4-again, 0)).Draw(t, "acts") {
				name := rapid.SampledFrom(names).Draw(t, "act")
				do := possible[name]
				taken = taken || name == "taken over"
				of := starts[rapid.IntRange(0, len(starts)-1).Draw(t, "of")]
				at := time.Duration(rapid.IntRange(0, 20_000).Draw(t, "after ms")) * time.Millisecond
				scripts = append(scripts, after(at, func(env environment) { do(l, of, env) }))
			}
			l.run(scripts...)
		}
		b.failNext(0)
		b.setState(t, b.endpoint.ID, webhook.EndpointActive)
		shared := l.id
		for _, start := range starts {
			checkLeft(t, l, start, shared, taken)
		}
		for _, start := range starts {
			keeper, _ := l.keepers.of(start.DeliveryID)
			l.finish(start)
			d := b.delivery(t, start.DeliveryID)
			require.True(t, d.State.Final(), "%s", d.State)
			checkAttempts(t, b.attempts(t, start.DeliveryID), d, policy, map[int]time.Time{d.Run: d.GiveUpAt})
			require.Equal(t, d.Attempts, requestsOf(b, start.EventID), "each request is an attempt, each attempt was one request")
			require.Contains(t, []string{shared, start.Ref.WorkflowID(d.Run), keeper}, d.WorkflowID)
		}
	})
}

// checkLeft checks where a delivery is when its shared workflow has ended.
func checkLeft(t require.TestingT, l *life, start webhook.Start, shared string, taken bool) {
	d := l.b.delivery(t, start.DeliveryID)
	keeper, _ := l.keepers.of(start.DeliveryID)
	switch {
	case d.State.Final(), d.Run > 1:
	case d.State == webhook.StateHeld:
		require.Empty(t, d.WorkflowID, "until it is released")
	case d.State == webhook.StateDeadLettered:
		require.True(t, keeper == d.WorkflowID || taken && d.WorkflowID == start.WorkflowID(), "it is in %s, and kept by %q", d.WorkflowID, keeper)
	default:
		require.True(t, taken && d.WorkflowID == start.WorkflowID(), "%s, and %q does not continue it", d.State, d.WorkflowID)
	}
}

// finish lets a delivery come to its end that its shared workflow has left: as a dead letter, by a release, by the next run, or in its own workflow,
// which the reconciler starts.
func (l *life) finish(start webhook.Start) {
	l.start, l.next, l.input, l.id = start, "", nil, ""
	d := l.b.delivery(l.t, start.DeliveryID)
	switch {
	case d.State == webhook.StateDeadLettered:
		if keeper, _ := l.keepers.of(start.DeliveryID); keeper == "" { // its own has taken it over
			l.keepers.kept = append(l.keepers.kept, activities.Keeping{
				WorkflowID: d.WorkflowID, DeadLetters: []activities.DeliveryState{{Ref: d.Ref, Progress: d.Progress, Unconfirmed: true}},
			})
		}
		l.isKept(start)
	case d.Run == 1 && d.State.Open() && d.State != webhook.StateHeld:
		l.next, l.input = "DeliveryWorkflow", workflows.InputOf(webhook.Start{Ref: d.Ref, Run: d.Run, Resume: &d.Progress})
		l.member().Unconfirmed = true
	default:
		l.relay()
	}
	for run := 1; l.next != ""; run++ {
		require.Less(l.t, run, 100, "it never ends")
		l.run()
		l.relay()
	}
}
