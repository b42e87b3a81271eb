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

// fanoutActs are what people, the relay and faults may do to a shared workflow and to
// one of its deliveries.
func fanoutActs() map[string]func(l *life, of webhook.Start, env environment) {
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
		"hand-over fails": func(l *life, _ webhook.Start, _ environment) {
			fail := failing(2)
			l.handed.failing(func(activities.DeliveryState) error { return fail() })
		},
		"paused": func(l *life, _ webhook.Start, _ environment) {
			l.b.setState(l.t, l.b.endpoint.ID, webhook.EndpointPaused)
		},
		"resumed": func(l *life, _ webhook.Start, _ environment) {
			l.b.setState(l.t, l.b.endpoint.ID, webhook.EndpointActive)
		},
	}
}

// Whatever happens, each delivery ends in the shared workflow or is handed over once. The store names the workflow that continues it,
// nothing is sent twice, and all deliveries end.
func TestFanoutDeliveriesEnd(t *testing.T) {
	t.Parallel()
	policy, _ := retry.Lookup("fast")
	b := setupPolicy(t, policy)
	possible := fanoutActs()
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
		for again := 0; l.next != ""; again++ { // once more for each time that its history gets long
			require.Less(t, again, 100, "it never ends")
			var scripts []func(environment)
			for range rapid.IntRange(0, max(4-again, 0)).Draw(t, "acts") {
				do := possible[rapid.SampledFrom(names).Draw(t, "act")]
				of := starts[rapid.IntRange(0, len(starts)-1).Draw(t, "of")]
				at := time.Duration(rapid.IntRange(0, 20_000).Draw(t, "after ms")) * time.Millisecond
				scripts = append(scripts, after(at, func(env environment) { do(l, of, env) }))
			}
			l.run(scripts...)
		}
		b.failNext(0)
		b.setState(t, b.endpoint.ID, webhook.EndpointActive)
		for _, start := range starts {
			checkLeft(t, l, start)
		}
		shared := l.id
		for _, start := range starts {
			l.finish(start)
			d := b.delivery(t, start.DeliveryID)
			require.True(t, d.State.Final(), "%s", d.State)
			checkAttempts(t, b.attempts(t, start.DeliveryID), d, policy, map[int]time.Time{d.Run: d.GiveUpAt})
			require.Equal(t, d.Attempts, requestsOf(b, start.EventID), "each request is an attempt, each attempt was one request")
			own := start.Ref.WorkflowID(d.Run)
			if keeper, _ := l.handed.keptIn(start.DeliveryID); keeper != "" {
				require.Contains(t, []string{keeper, own}, d.WorkflowID)
				continue
			}
			require.Contains(t, []string{shared, own}, d.WorkflowID)
			if h, left := l.handed.of(start.DeliveryID); left && !h.Running { // else the shared one may have recorded its end
				require.Equal(t, own, d.WorkflowID)
			}
		}
	})
}

// checkLeft checks where a delivery is when its shared workflow has ended.
func checkLeft(t require.TestingT, l *life, start webhook.Start) {
	h, left := l.handed.of(start.DeliveryID)
	d := l.b.delivery(t, start.DeliveryID)
	if !left {
		held := d.State == webhook.StateHeld && d.WorkflowID == "" // until it is released
		require.True(t, d.State.Final() || d.Run > 1 || held, "%s, and no workflow continues it", d.State)
		return
	}
	require.Equal(t, 1, h.Run)
	if d.State.Open() && d.Run == 1 && !h.Running {
		require.True(t, h.Unconfirmed || d.WorkflowID == start.WorkflowID(), "the store names %s, and is not updated", d.WorkflowID)
	}
}

// finish lets the own workflow of a delivery run to its end, if it has one.
func (l *life) finish(start webhook.Start) {
	h, left := l.handed.of(start.DeliveryID)
	l.start, l.next, l.input = start, "", nil
	if left {
		l.goesOn(h)
	} else {
		l.relay()
	}
	for run := 1; l.next != ""; run++ {
		require.Less(l.t, run, 100, "it never ends")
		l.run()
		l.relay()
	}
}
