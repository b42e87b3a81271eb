package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/receivertest"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// refused is what the audit log says of an ignored signal.
type refused struct {
	Source   string `json:"source"`
	Signal   string `json:"signal"`
	Reason   string `json:"reason"`
	Workflow string `json:"workflow_id"`
}

// refusals are the ignored signals in the audit log, sorted by name, each of which has the subject.
func (b *bundle) refusals(t *testing.T, subject string) (all []refused) {
	t.Helper()
	entries, err := b.store.Audit.ListAudit(t.Context(), webhook.AuditFilter{TenantID: tenant, Action: "workflow.refuse_signal"}, webhook.Page{Limit: 100})
	require.NoError(t, err)
	for _, e := range entries {
		require.Equal(t, []string{"workflow", subject}, []string{e.By.Name, e.Subject})
		var detail refused
		require.NoError(t, json.Unmarshal(e.Detail, &detail))
		require.Equal(t, "workflow signal", detail.Source)
		require.NotEmpty(t, detail.Workflow)
		all = append(all, detail)
	}
	slices.SortFunc(all, func(x, y refused) int { return strings.Compare(x.Signal+x.Reason, y.Signal+y.Reason) })
	return all
}

func namesOf(all []refused) (names []string) {
	for _, r := range all {
		names = append(names, r.Signal)
	}
	return names
}

// Signals that a delivery cannot carry out are in its details and, once each, in the audit log. They change nothing.
func TestSignalsThatADeliveryIgnores(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Script("/hook", receivertest.Step{Status: 500}, receivertest.Step{Status: 400})
	l := b.deliver(t)
	other := webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())
	l.run(after(time.Second, func(env environment) {
		for range 50 {
			env.SignalWorkflow(workflows.SignalDiscard, "not needed")
		}
		env.SignalWorkflow(workflows.SignalReplay, nil)
		env.SignalWorkflow(workflows.SignalReschedule, "tomorrow")
		env.SignalWorkflow("retry\x00`now", nil)
		env.SignalWorkflow(workflows.SignalCancel, workflows.CommandSignal{DeliveryID: other})
	}), after(2*time.Second, func(environment) {
		shown := l.details()
		require.Contains(t, shown, "**retrying**")
		require.Contains(t, shown, "\nSignals that were ignored:\n\n- `discard` at ")
		require.Contains(t, shown, ", 50 times: the delivery is retrying, and only a dead letter can be discarded; cancel ends an open delivery\n")
		require.Contains(t, shown, "and only a dead letter can be replayed by a signal; retry-now makes the next attempt at once\n")
		require.Contains(t, shown, "its input has no time; an example is \"2026-02-01T09:30:00Z\"\n")
		require.Contains(t, shown, "- `retry??now` at ")
		require.Contains(t, shown, ": this workflow takes only cancel, retry-now, reschedule, replay and discard\n")
		require.Contains(t, shown, "names a delivery that is not in this workflow, or no longer\n")
	}))
	in := l.deadLettered("http_400")
	require.Equal(t, 2, in.Attempts)
	audited := b.refusals(t, l.start.DeliveryID.String())
	require.Equal(t, []string{"cancel", "discard", "replay", "reschedule", "retry??now"}, namesOf(audited))

	l.run(after(time.Hour, signal(workflows.SignalCancel, nil)), after(2*time.Hour, func(environment) {
		require.Contains(t, l.details(), "- `discard` at ", "the run before is remembered")
		require.NotContains(t, l.details(), "the delivery is dead_lettered and has no next attempt", "five kinds are enough")
	}), after(3*time.Hour, signal(workflows.SignalReplay, nil)))
	l.opened(2)
	require.Len(t, b.refusals(t, l.start.DeliveryID.String()), 5)
}

// noAudit is an audit log that cannot be written.
type noAudit struct{ calls atomic.Int64 }

func (a *noAudit) SignalsRefused(context.Context, webhook.RefusedSignals) error {
	a.calls.Add(1)
	return errAway
}

// Without a store the details have what was ignored, and the delivery goes on.
func TestIgnoredSignalsWithoutTheAuditLog(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	audit := &noAudit{}
	b.change = func(_ *life, c *activities.Config) { c.Audit = audit }
	b.receiver.Script("/hook", receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, signal(workflows.SignalReplay, nil)), after(4*time.Second, signal(workflows.SignalReplay, nil)))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Regexp(t, "- `replay` at .*, 2 times: ", l.details())
	require.Equal(t, int64(3), audit.calls.Load(), "three tries, and no more for the repetition")
}

// A flood of signals under ever new names leaves five entries in the audit log.
func TestAFloodOfUnknownSignals(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Script("/hook", receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, func(env environment) {
		for n := range 100 {
			env.SignalWorkflow(fmt.Sprintf("unknown %03d %s", n, strings.Repeat("x", 200)), nil)
		}
	}))
	require.Equal(t, 2, l.ends(webhook.StateDelivered, "").Attempts)
	require.Len(t, b.refusals(t, l.start.DeliveryID.String()), 5)
	require.Equal(t, 5, strings.Count(l.details(), "- `unknown "))
}

func TestSignalsThatADeadLetterIgnores(t *testing.T) {
	t.Parallel()
	l := deadLetter(t)
	l.run(after(time.Hour, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, nil)
		env.SignalWorkflow(workflows.SignalRetryNow, nil)
		env.SignalWorkflow(workflows.SignalReschedule, "2030-01-01T00:00:00Z")
		env.SignalWorkflow(workflows.SignalPause, nil)
	}), after(2*time.Hour, func(environment) {
		for _, name := range []string{"cancel", "retry-now", "reschedule"} {
			require.Regexp(t, "- `"+name+"` at .*: the delivery is dead_lettered and has no next attempt; a dead letter takes replay and discard\n",
				l.details())
		}
	}))
	l.ends(webhook.StateDiscarded, webhook.ReasonRetention)
	require.Equal(t, []string{"cancel", "pause", "reschedule", "retry-now"}, namesOf(l.b.refusals(t, l.start.DeliveryID.String())))
}

// A shared workflow ignores what means none of its deliveries, and each of them stays.
func TestSignalsThatASharedWorkflowIgnores(t *testing.T) {
	t.Parallel()
	l, starts := trio(t)
	other := webhook.DeliveryIDOf(webhook.NewEventID(), webhook.NewEndpointID())
	l.run(after(time.Second, func(env environment) {
		env.SignalWorkflow(workflows.SignalCancel, 17)
		env.SignalWorkflow(workflows.SignalRetryNow, workflows.CommandSignal{DeliveryID: other})
		env.SignalWorkflow(workflows.SignalDiscard, nil)
		env.SignalWorkflow(workflows.SignalReplay, workflows.CommandSignal{DeliveryID: starts[0].DeliveryID})
		env.SignalWorkflow(workflows.SignalReschedule, "soon")
	}), after(2*time.Second, func(environment) {
		require.Contains(t, l.details(), "**3 deliveries**, 3 of them still here\n\n")
		require.Contains(t, l.details(), "- `retry-now` at ")
	}))
	for _, start := range starts {
		l.stayed(start, webhook.StateDelivered, 2)
		require.Contains(t, l.details(), "- `"+start.DeliveryID.String()+"` · `order.paid` to `"+start.EndpointID.String()+"`: delivered with attempt 2\n")
	}
	require.Equal(t, []string{"cancel", "discard", "replay", "reschedule", "retry-now"}, namesOf(l.b.refusals(t, l.id)))
}

func TestSignalsThatAReplayIgnores(t *testing.T) {
	t.Parallel()
	r := setupReplay(t, 3).replayOf(t, 60, webhook.Replay{})
	r.run(after(time.Second, signal(workflows.SignalRetryNow, nil)), after(2*time.Second, func(environment) {
		require.Contains(t, r.details(), "- `retry-now` at ")
		require.Contains(t, r.details(), ": this workflow takes only pause, resume, cancel and set-rate\n")
	}))
	r.ends(webhook.ReplayCompleted, "")
	entries, err := r.b.store.Audit.ListAudit(t.Context(), webhook.AuditFilter{Action: "workflow.refuse_signal"}, webhook.Page{Limit: 100})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, r.replay.ID.String(), entries[0].Subject)
}

// What the details say of the deliveries of a shared workflow.
func TestDetailsOfASharedWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	starts := b.acceptSome(t, 3)
	paused := b.newEndpoint(t, b.endpoint.RetryPolicy)
	starts = append(starts, b.acceptFor(t, paused.ID))
	b.setState(t, paused.ID, webhook.EndpointPaused)
	b.receiver.Script(starts[1].EventID.String(), receivertest.Step{Status: 503})
	b.receiver.Script(starts[2].EventID.String(), receivertest.Step{Status: 400})
	l := b.share(t, time.Hour, starts...)
	again := b.shareIn(t, "another process", time.Hour, starts...)
	line := func(start webhook.Start, words string) string {
		return "- `" + start.DeliveryID.String() + "` · `order.paid` to `" + start.EndpointID.String() + "`: " + words
	}
	l.run(after(time.Second, func(environment) {
		shown := l.details()
		require.Contains(t, shown, "**4 deliveries**, 2 of them still here\n\n")
		require.Contains(t, shown, line(starts[0], "delivered with attempt 1\n"))
		require.Regexp(t, line(starts[1], `retrying\. Attempt 1 at .* UTC got 503 Service Unavailable; attempt 2 follows at .* UTC; `+
			`until .* UTC\.`)+"\n", shown)
		require.Contains(t, shown, line(starts[2], "dead_lettered, about to go to the workflow that keeps it\n"))
		require.Contains(t, shown, line(starts[3], "held, without a workflow: its endpoint is paused\n"))
		require.Equal(t, []string{"retrying"}, l.states)
	}))
	require.Contains(t, l.details(), "**4 deliveries**\n\n")
	require.Contains(t, l.details(), line(starts[1], "delivered with attempt 2\n"))
	require.Contains(t, l.details(), line(starts[2], "given up; as a dead letter it is in the workflow dead/"+l.id+"/0\n"))
	require.Equal(t, []string{"retrying", ""}, l.states)

	again.run() // what it is started for has ended
	require.Contains(t, again.details(), line(starts[0], "delivered with attempt 1\n"))
	require.Contains(t, again.details(), line(starts[1], "delivered with attempt 2\n"))
}

// Text of others in the details is text.
func TestDetailsAreMarkdownOfOurOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, "default")
	b.receiver.Default(receivertest.Step{Status: 500})
	l := b.deliver(t)
	l.run(after(time.Second, signal(workflows.SignalCancel, "<b>[a](http://x.example/?q)</b> `c` *d* \\e")))
	require.Equal(t, webhook.StateCancelled, b.delivery(t, l.start.DeliveryID).State)
	require.Contains(t, l.details(), "(\"\\<b>\\[a](http://x.example \\`c\\` \\*d\\* \\\\\\\\e\")")
}
