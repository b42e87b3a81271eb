package workflows_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// act is something that is done to a delivery at a moment of its life.
type act struct {
	at   time.Duration // after the start of the run
	name string
	do   func(l *life, env environment)
}

// acts are what people, the relay and faults may do to a delivery in any state.
// What the API would refuse in the state it is in is left out there.
func acts() map[string]func(l *life, env environment) {
	byAPI := func(c webhook.Command, name string) func(l *life, env environment) {
		return func(l *life, env environment) {
			pending, taken := l.b.tryCommand(l.t, l.start.DeliveryID, c, "by the API")
			if !taken {
				return
			}
			asked := workflows.CommandSignal{CommandID: pending.ID, Reason: "by the API"}
			if c == webhook.CommandReplay {
				asked = workflows.CommandSignal{Run: l.b.delivery(l.t, l.start.DeliveryID).Run}
			}
			env.SignalWorkflow(name, asked)
		}
	}
	byHand := func(name string) func(l *life, env environment) {
		return func(_ *life, env environment) { env.SignalWorkflow(name, nil) }
	}
	return map[string]func(l *life, env environment){
		"cancel":          byAPI(webhook.CommandCancel, workflows.SignalCancel),
		"retry":           byAPI(webhook.CommandRetry, workflows.SignalRetryNow),
		"replay":          byAPI(webhook.CommandReplay, workflows.SignalReplay),
		"discard":         byAPI(webhook.CommandDiscard, workflows.SignalDiscard),
		"cancel by hand":  byHand(workflows.SignalCancel),
		"retry by hand":   byHand(workflows.SignalRetryNow),
		"replay by hand":  byHand(workflows.SignalReplay),
		"discard by hand": byHand(workflows.SignalDiscard),
		"cancel workflow": func(_ *life, env environment) { env.CancelWorkflow() },
		"continue as new": func(_ *life, env environment) { env.SetContinueAsNewSuggested(true) },
		"store is away":   func(l *life, _ environment) { l.b.failNext(3) },
		"store is ahead":  func(l *life, _ environment) { l.ahead() },
		"stale retry": func(_ *life, env environment) {
			env.SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{CommandID: 1})
		},
		"stale replay": func(_ *life, env environment) {
			env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{Run: 1})
		},
		"nothing happened": func(*life, environment) {},
	}
}

// failNext makes the next n statements of the activities fail.
func (b *bundle) failNext(n int64) {
	fail := failing(n)
	onBegin, onRecord := func(webhook.Claim) error { return fail() }, func(webhook.Step) error { return fail() }
	b.record.onBegin.Store(&onBegin)
	b.record.onRecord.Store(&onRecord)
}

// ahead moves the store forward by a step that its workflow knows nothing of.
func (l *life) ahead() {
	l.b.exec(l.t, `update deliveries set seq = seq + 1 where id = $1 and state < 3`, l.start.DeliveryID)
}

// drawActs draws what happens in one run.
func drawActs(t *rapid.T, run int) []act {
	possible := acts()
	names := make([]string, 0, len(possible))
	for name := range possible {
		names = append(names, name)
	}
	// rapid repeats a failure from its draws: the order must not be the map's.
	slices.Sort(names)
	n := rapid.IntRange(0, 4).Draw(t, "acts of run "+strconv.Itoa(run))
	drawn := make([]act, 0, n)
	for range n {
		name := rapid.SampledFrom(names).Draw(t, "act")
		at := time.Duration(rapid.IntRange(0, 200_000).Draw(t, "after ms")) * time.Millisecond
		drawn = append(drawn, act{at, name, possible[name]})
	}
	return drawn
}

func drawStep(t *rapid.T) receivertest.Step {
	step := receivertest.Step{Status: rapid.SampledFrom([]int{200, 204, 400, 404, 410, 429, 500, 503}).Draw(t, "status")}
	if after := rapid.SampledFrom([]int{0, 0, 0, 1, 60, 3000, 100_000}).Draw(t, "Retry-After"); after > 0 {
		step.Header = map[string]string{"Retry-After": strconv.Itoa(after)}
	}
	return step
}

// Whatever receivers, people and the store do, a delivery ends in one state, within the bounds of its policy, and the store and the
// workflow agree on it.
func TestEveryDeliveryEnds(t *testing.T) {
	t.Parallel()
	policy, _ := retry.Lookup("fast")
	b := setupPolicy(t, policy)
	rapid.Check(t, func(t *rapid.T) {
		b.failNext(0)
		var deliverAt time.Time
		if rapid.Bool().Draw(t, "deliver_at") {
			deliverAt = time.Now().Add(time.Minute)
		}
		fastWait := rapid.SampledFrom([]time.Duration{time.Nanosecond, time.Hour}).Draw(t, "fast wait")
		l := b.begin(t, b.accept(t, deliverAt), fastWait)
		l.b.receiver.Script(l.start.EventID.String(), rapid.SliceOfN(rapid.Custom(drawStep), 0, 12).Draw(t, "answers")...)

		giveUp := map[int]time.Time{1: l.start.GiveUpAt}
		for run := 1; l.next != ""; run++ {
			require.Less(t, run, 100, "it never ends")
			before := b.delivery(t, l.start.DeliveryID)
			giveUp[before.Run] = before.GiveUpAt
			var scripts []func(environment)
			if run <= 5 { // afterwards it is left to itself
				for _, a := range drawActs(t, run) {
					scripts = append(scripts, after(a.at, func(env environment) { a.do(l, env) }))
				}
			}
			l.run(scripts...)
			l.relay()
			checkNext(t, l)
		}

		d := b.delivery(t, l.start.DeliveryID)
		require.True(t, d.State.Final(), "%s", d.State)
		giveUp[d.Run] = d.GiveUpAt
		checkAttempts(t, b.attempts(t, l.start.DeliveryID), d, policy, giveUp)
		require.Equal(t, d.Attempts, requestsOf(b, l.start.EventID), "each request is an attempt, each attempt was one request")
	})
}

// relay starts the delivery again, as the relay does, when a replay has opened a run
// in the moment between the store's end of the run before and the workflow's: its
// signal was passed over, and its outbox row is still there.
func (l *life) relay() {
	d := l.b.delivery(l.t, l.start.DeliveryID)
	if l.next != "" || !d.State.Open() {
		return
	}
	if d.State == webhook.StateHeld { // its release starts a workflow
		l.id, l.next, l.input = "", "DeliveryWorkflow", workflows.InputOf(webhook.Start{Ref: d.Ref, Run: d.Run, Resume: &d.Progress})
		return
	}
	var run int
	require.NoError(l.t, l.b.store.Pool().QueryRow(context.Background(), `select run from outbox where delivery_id = $1`, d.DeliveryID).Scan(&run))
	require.Equal(l.t, d.Run, run)
	l.id, l.next, l.input = "", "DeliveryWorkflow", workflows.InputOf(webhook.Start{Ref: d.Ref, Run: run, GiveUpAt: d.GiveUpAt})
}

// checkNext checks that the store and the next run agree.
func checkNext(t require.TestingT, l *life) {
	d := l.b.delivery(t, l.start.DeliveryID)
	switch in := l.input.(type) {
	case nil:
		require.True(t, d.State.Final(), "it has ended as %s", d.State)
	case workflows.DeadLetterInput:
		dead := in.DeadLetters[0]
		require.Equal(t, webhook.StateDeadLettered, dead.State)
		if d.Run == dead.Run+1 { // a replay came between the store's end of the run and the workflow's
			require.Equal(t, webhook.StatePending, d.State)
			return
		}
		require.Equal(t, dead.Run, d.Run)
	case workflows.DeliveryInput:
		require.True(t, in.Members[0].State.Open())
		require.Equal(t, in.Members[0].Run, d.Run)
	}
}

func checkAttempts(t require.TestingT, attempts []webhook.Attempt, d webhook.Delivery, policy retry.Policy, giveUp map[int]time.Time) {
	require.Len(t, attempts, d.Attempts)
	inRun, delivered := map[int]int{}, map[int]bool{}
	for i, a := range attempts {
		require.Equal(t, i+1, a.Number, "numbered without a gap")
		require.False(t, delivered[a.Run], "nothing is sent after it was delivered")
		delivered[a.Run] = a.Outcome.Decision == retry.Delivered
		inRun[a.Run]++
		if at, known := giveUp[a.Run]; known {
			require.False(t, a.StartedAt.After(at), "attempt %d started at %s, after %s", a.Number, a.StartedAt, at)
		}
	}
	for run, n := range inRun {
		require.LessOrEqual(t, n, policy.MaxAttempts, "in run %d", run)
	}
	require.Equal(t, d.State == webhook.StateDelivered, delivered[d.Run])
}

func requestsOf(b *bundle, id webhook.EventID) (n int) {
	for _, r := range b.receiver.Requests() {
		if r.WebhookID() == id.String() {
			n++
		}
	}
	return n
}
