package activities

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// is are what is true of an attempt: they change its input and what is known of it, one after the other.
type is []func(in *AttemptInput, f *facts)

// described describes an outcome in words.
func described(out outcome, in *AttemptInput, now time.Time) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	after := func(t time.Time) time.Duration { return t.Sub(now) }
	switch {
	case out.fault != nil:
		add("fault: %v", out.fault)
	case out.step != nil:
		add("record %s", out.step.State)
		for _, word := range []string{out.step.Reason, out.step.LastError} {
			if word != "" {
				add("%s", word)
			}
		}
		if !out.step.DueAt.IsZero() {
			add("due after %s", after(out.step.DueAt))
		}
	case out.answer != nil:
		add("answer %s", out.answer.State)
		if out.answer.Reason != in.Reason {
			add("%s", out.answer.Reason)
		}
		if out.answer.Found {
			add("found")
		}
		if !out.answer.ClaimedUntil.IsZero() {
			add("claimed for %s", after(out.answer.ClaimedUntil))
		}
		if out.answer.Command.Command != webhook.CommandNone {
			add("command %d", out.answer.Command.ID)
		}
	default:
		return "goes on"
	}
	return strings.Join(words, ", ")
}

const maxHeld = 30 * 24 * time.Hour

// Every row of what becomes of an attempt. The delivery has had three attempts in its second run, and its next one is due.
func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// of the input
	expired := func(in *AttemptInput, _ *facts) { in.GiveUpAt = now.Add(-time.Second) }
	first := func(in *AttemptInput, _ *facts) { in.RunAttempts = 0 }
	faultBefore := func(in *AttemptInput, _ *facts) { in.Faults = 1 }
	otherTenant := func(in *AttemptInput, _ *facts) { in.TenantID = "other" }
	deferred := func(in *AttemptInput, _ *facts) { in.Reason = webhook.ReasonRate }
	justExpired := func(in *AttemptInput, _ *facts) { in.GiveUpAt = now }
	held := func(reason string) func(*AttemptInput, *facts) {
		return func(in *AttemptInput, _ *facts) {
			in.State, in.Reason, in.DueAt = webhook.StateHeld, reason, time.Time{}
		}
	}
	heldFor := func(d, before time.Duration) func(*AttemptInput, *facts) { // paused an hour before its give-up time
		return func(in *AttemptInput, _ *facts) {
			held(webhook.ReasonPaused)(in, nil)
			in.HeldAt, in.HeldFor, in.GiveUpAt = now.Add(-d), before, now.Add(time.Hour-d)
			in.HeldUntil = in.HeldAt.Add(maxHeld - before)
		}
	}
	deliverAfter := func(d time.Duration) func(*AttemptInput, *facts) {
		return func(in *AttemptInput, _ *facts) { in.NotBefore = now.Add(d) }
	}
	// of what is known
	unstored := func(_ *AttemptInput, f *facts) { f.unstored = true }
	fault := func(_ *AttemptInput, f *facts) { f.fault = "no key" }
	deleted := func(_ *AttemptInput, f *facts) { f.deleted = true }
	endpoint := func(state webhook.EndpointState) func(*AttemptInput, *facts) {
		return func(_ *AttemptInput, f *facts) {
			f.target = &webhook.Target{Endpoint: webhook.Endpoint{TenantID: "acme", State: state, RetryPolicy: retry.Default()}}
		}
	}
	active, paused, disabled := endpoint(webhook.EndpointActive), endpoint(webhook.EndpointPaused), endpoint(webhook.EndpointDisabled)
	refused := func(reason string, wait time.Duration) func(*AttemptInput, *facts) {
		return func(_ *AttemptInput, f *facts) {
			f.refusal = &admission.Decision{Reason: reason, Wait: wait}
			if wait > 0 {
				f.refusal.Until = now.Add(wait)
			}
		}
	}
	token := func(_ *AttemptInput, f *facts) { f.content = &webhook.Content{} }
	removed := func(_ *AttemptInput, f *facts) { f.claim.Payload, f.content = nil, nil }
	corrupt := func(_ *AttemptInput, f *facts) { f.content = nil }
	made := func(d retry.Decision, reason retry.Reason) func(*AttemptInput, *facts) {
		return func(_ *AttemptInput, f *facts) {
			f.answered, f.made = true, webhook.Attempt{StartedAt: now, Outcome: retry.Outcome{Decision: d, Reason: reason}}
		}
	}
	met := func(err error) func(*AttemptInput, *facts) { return func(_ *AttemptInput, f *facts) { f.met = err } }
	ofEndpoint := &internalError{error: errors.New("attempt 6: no key"), text: "no key", scope: scopeEndpoint}
	ofStore := &internalError{error: errors.New("away"), text: "away", scope: scopeStore}
	ofDelivery := errors.New("a panic")
	unrecorded := func(_ *AttemptInput, f *facts) {
		f.unrecorded = &webhook.Step{Progress: webhook.Progress{State: webhook.StateDelivered}}
	}

	// What the store says: as the input does, but for an attempt of an earlier run.
	type change = func(*webhook.DeliveryStatus)
	unchanged := func(*webhook.DeliveryStatus) {}
	later := func(s *webhook.DeliveryStatus) { s.Seq++; s.State = webhook.StateDelivered }
	nextRun := func(s *webhook.DeliveryStatus) { s.Run, s.Seq = 3, 0 }
	earlier := func(s *webhook.DeliveryStatus) { s.Seq--; s.State = webhook.StatePending }
	ended := func(s *webhook.DeliveryStatus) { s.State = webhook.StateCancelled }
	claimedFor := func(d time.Duration) change { return func(s *webhook.DeliveryStatus) { s.ClaimedUntil = now.Add(d) } }
	command := func(id int64, command webhook.Command) change {
		return func(s *webhook.DeliveryStatus) { s.Command = webhook.PendingCommand{ID: id, Command: command} }
	}
	statusOf := func(in *AttemptInput, change change) webhook.DeliveryStatus {
		s := webhook.DeliveryStatus{Progress: in.Progress, WorkflowID: "fanout/it"}
		s.Attempts++
		change(&s)
		return s
	}
	status := func(change change) func(*AttemptInput, *facts) {
		return func(in *AttemptInput, f *facts) { s := statusOf(in, change); f.status = &s }
	}
	claim := func(granted bool, change change) func(*AttemptInput, *facts) {
		return func(in *AttemptInput, f *facts) {
			f.claim = &webhook.ClaimResult{Granted: granted, Status: statusOf(in, change), Payload: []byte("{}")}
			f.content = &webhook.Content{Payload: f.claim.Payload}
		}
	}
	granted := claim(true, unchanged)

	const faultText = "an internal fault kept the delivery from being sent for as long as it may be held"
	for name, c := range map[string]struct {
		want string // in words of described
		is   is
	}{
		// before the endpoint is loaded
		"nothing is known":                   {"goes on", is{}},
		"the store knows no such delivery":   {"answer cancelled, unknown_delivery", is{unstored}},
		"another process has made it":        {"answer delivered, found", is{status(later)}},
		"the delivery has ended":             {"answer cancelled, found", is{status(ended)}},
		"a replay has begun":                 {"answer retrying, found", is{status(nextRun)}},
		"another process makes it":           {"answer retrying, claimed for 9s", is{status(claimedFor(9 * time.Second))}},
		"another process's claim ends":       {"answer retrying, claimed for 1s", is{status(claimedFor(-time.Hour))}},
		"no other process makes it":          {"goes on", is{status(unchanged)}},
		"a fault is known":                   {"record held, internal, no key", is{fault}},
		"a fault is known, expired":          {"record dead_lettered, internal, no key", is{fault, expired}},
		"a fault is known, released":         {"goes on", is{fault, held(webhook.ReasonInternal)}},
		"a fault is known, deliver_at":       {"goes on", is{fault, deliverAfter(time.Millisecond)}},
		"a fault is known, made elsewhere":   {"answer retrying, claimed for 9s", is{fault, status(claimedFor(9 * time.Second))}},
		"a fault is known, endpoint deleted": {"record held, internal, no key", is{fault, deleted}},

		// before admission is asked
		"endpoint active":                   {"goes on", is{active}},
		"endpoint deleted":                  {"record cancelled, endpoint_deleted", is{deleted}},
		"endpoint of another tenant":        {"answer cancelled, unknown_delivery", is{paused, otherTenant}},
		"endpoint paused":                   {"record held, endpoint_paused", is{paused}},
		"endpoint disabled":                 {"record held, endpoint_disabled", is{disabled}},
		"endpoint paused, expired":          {"record dead_lettered, held_expired", is{paused, expired}},
		"deliver_at is to come":             {"record retrying, due after 1m0s", is{paused, deliverAfter(time.Minute)}},
		"deliver_at is almost there":        {"goes on", is{active, deliverAfter(50 * time.Millisecond)}},
		"held, released":                    {"goes on", is{active, held(webhook.ReasonPaused)}},
		"held, released, paused again":      {"record held, endpoint_paused", is{paused, held(webhook.ReasonBacklog)}},
		"held, expired":                     {"record dead_lettered, held_expired", is{active, held(webhook.ReasonPaused), expired}},
		"held for a fault, expired":         {"record dead_lettered, internal, no key", is{active, fault, held(webhook.ReasonInternal), expired}},
		"held for a past fault, expired":    {"record dead_lettered, internal, " + faultText, is{active, held(webhook.ReasonInternal), expired}},
		"held for a fault, paused, expired": {"record dead_lettered, internal, no key", is{paused, fault, held(webhook.ReasonInternal), expired}},
		"held for long, released":           {"goes on", is{active, heldFor(maxHeld-time.Second, 0)}},
		"held for long, paused again":       {"record held, endpoint_paused", is{paused, heldFor(maxHeld-time.Second, 0)}},
		"held for too long":                 {"record dead_lettered, held_expired", is{active, heldFor(maxHeld+time.Second, 0)}},
		"held for too long in two spans":    {"record dead_lettered, held_expired", is{active, heldFor(time.Hour, maxHeld-time.Minute)}},
		"deferred":                          {"goes on", is{active, deferred}},
		"deferred, expired":                 {"record dead_lettered, deferred_expired", is{active, deferred, justExpired}},
		"expired: the store may know more":  {"goes on", is{active, expired}},

		// admission
		"deferred by admission":               {"record retrying, rate, due after 1m0s", is{active, refused(webhook.ReasonRate, time.Minute)}},
		"first attempt deferred by admission": {"record pending, rate, due after 1m0s", is{active, refused(webhook.ReasonRate, time.Minute), first}},
		"released, deferred by admission": {
			"record retrying, rate, due after 1m0s", is{active, refused(webhook.ReasonRate, time.Minute), held(webhook.ReasonPaused)},
		},
		"deferred beyond the give-up time": {"record retrying, rate, due after 1h0m0s", is{active, refused(webhook.ReasonRate, 2*time.Hour)}},
		"held by admission":                {"record held, backlog", is{active, refused(webhook.ReasonBacklog, 0)}},
		"held by admission, expired":       {"record dead_lettered, held_expired", is{active, refused(webhook.ReasonBacklog, 0), expired}},
		"its permit is of no use":          {"record retrying, no_owner, due after 1s", is{active, granted, refused(webhook.ReasonNoOwner, time.Second)}},

		// the right to send
		"a token":                            {"goes on", is{active, token}},
		"a token, expired":                   {"record dead_lettered, give_up_time", is{active, token, expired}},
		"a claim":                            {"goes on", is{active, granted}},
		"a claim, expired":                   {"record dead_lettered, give_up_time", is{active, expired, granted}},
		"a claim, expired after faults":      {"record dead_lettered, internal", is{active, expired, granted, faultBefore}},
		"the store knows it":                 {"answer delivered, found", is{active, claim(false, later)}},
		"the store knows an end":             {"answer cancelled, found", is{active, claim(false, ended)}},
		"the store knows a replay":           {"answer retrying, found", is{active, claim(false, nextRun)}},
		"the store has lost steps":           {"answer pending", is{active, claim(false, earlier)}},
		"claimed by another process":         {"answer retrying, claimed for 9s", is{active, claim(false, claimedFor(9*time.Second))}},
		"claimed by it a moment ago":         {"answer retrying, claimed for 1s", is{active, claim(false, unchanged)}},
		"a cancel is pending":                {"answer retrying, command 8", is{active, claim(true, command(8, webhook.CommandCancel))}},
		"a cancel is pending, expired":       {"answer retrying, command 8", is{active, expired, claim(true, command(8, webhook.CommandCancel))}},
		"a cancel was handled":               {"goes on", is{active, claim(true, command(7, webhook.CommandCancel))}},
		"a retry is pending":                 {"goes on", is{active, claim(true, command(8, webhook.CommandRetry))}},
		"the payload was removed":            {"record dead_lettered, payload_removed", is{active, granted, removed}},
		"the payload is corrupt":             {"record dead_lettered, payload_corrupt", is{active, granted, corrupt}},
		"the payload is corrupt, expired":    {"record dead_lettered, payload_corrupt", is{active, expired, granted, corrupt}},
		"there is nothing to claim any more": {"answer cancelled, unknown_delivery", is{active, unstored}},

		// the answer
		"delivered":                   {"record delivered", is{active, token, made(retry.Delivered, retry.ReasonDelivered)}},
		"refused for good":            {"record dead_lettered, http_400", is{active, token, made(retry.Permanent, "http_400")}},
		"a kept connection has ended": {"record retrying, due after -5s", is{active, token, made(retry.Retry, retry.ReasonConnectionReused)}},

		// an internal fault
		"a fault of the endpoint":                {"record held, internal, no key", is{met(ofEndpoint)}},
		"a fault of the endpoint, expired":       {"record dead_lettered, internal, no key", is{met(ofEndpoint), expired}},
		"a fault of the endpoint at the request": {"record held, internal, no key", is{active, token, met(ofEndpoint)}},
		"a fault of the delivery":                {"fault: a panic", is{active, token, met(ofDelivery)}},
		"a fault of the delivery, expired":       {"record dead_lettered, internal, a panic", is{active, met(ofDelivery), expired}},
		"a fault after a refusal":                {"fault: a panic", is{active, refused(webhook.ReasonRate, time.Minute), met(ofDelivery)}},
		"the store is out of reach":              {"fault: away", is{active, met(ofStore)}},
		"the store is out of reach, expired":     {"record dead_lettered, internal, away", is{active, met(ofStore), expired}},

		// an outcome that could not be recorded
		"an outcome is left": {"record delivered", is{unrecorded, expired}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := AttemptInput{
				Ref: webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID(), TenantID: "acme", EventType: "order.paid"},
				Progress: webhook.Progress{
					Run: 2, Seq: 4, State: webhook.StateRetrying, Attempts: 5, RunAttempts: 3, DueAt: now.Add(-time.Second), GiveUpAt: now.Add(time.Hour),
				},
				CommandDone: 7, Shared: "fanout/it",
			}
			in.DeliveryID = webhook.DeliveryIDOf(in.EventID, in.EndpointID)
			f := facts{maxHeld: maxHeld}
			for _, change := range c.is {
				change(&in, &f)
			}
			before := f
			out := decide(in, &f, now)
			require.Equal(t, before, f, "it is pure")
			require.Equal(t, c.want, described(out, &in, now))
			if step := out.step; step != nil && f.unrecorded == nil {
				requireFollows(t, &in, &f, step)
			}
			if answer := out.answer; answer != nil {
				require.Nil(t, answer.LastOutcome)
				require.Equal(t, f.claim != nil || f.status != nil, answer.WorkflowID != "", "as the store says")
				if answer.State == in.State && !answer.Found {
					require.Equal(t, in.Progress, answer.Progress, "it is not taken over before there is a right to send")
				}
			}
		})
	}
}

// requireFollows checks what is the same for all steps of an attempt.
func requireFollows(t *testing.T, in *AttemptInput, f *facts, step *webhook.Step) {
	t.Helper()
	require.Equal(t, [2]int{in.Run, in.Seq + 1}, [2]int{step.Run, step.Seq})
	require.Equal(t, in.CommandDone, step.CommandDone)
	workflow, other := map[webhook.State]string{webhook.StateHeld: "", webhook.StateDeadLettered: in.WorkflowID(in.Run)}[step.State]
	if !other {
		workflow = in.Shared
	}
	require.Equal(t, workflow, step.WorkflowID)
	attempts := in.Attempts
	if f.answered {
		attempts++
	}
	if f.claim != nil && f.refusal == nil && f.met == nil {
		attempts++ // it has those of earlier runs
		require.True(t, step.Known)
	}
	require.Equal(t, attempts, step.Attempts)
	require.Equal(t, f.answered, step.Attempt != nil)
	require.False(t, step.KeepOutbox)
}

// An outcome that is recorded late names the workflow that asks for it, which has been started, if it was eager, or nothing is left to be done. Else
// it names the workflow that has made the attempt: the store says which one goes on.
func TestDecideWhoRecordsAgain(t *testing.T) {
	t.Parallel()
	own := AttemptInput{Ref: webhook.Ref{EventID: webhook.NewEventID(), EndpointID: webhook.NewEndpointID()}}
	shared := own
	shared.Shared = "fanout/it"
	shared.KeptIn = "dead/fanout/it/0"
	id := own.WorkflowID(own.Run)
	for name, c := range map[string]struct {
		in    AttemptInput
		state webhook.State
		eager string
		other string
	}{
		"its own":                 {own, webhook.StateRetrying, id, "fanout/before"},
		"its own, delivered":      {own, webhook.StateDelivered, id, id},
		"its own, dead":           {own, webhook.StateDeadLettered, id, "fanout/before"},
		"a shared one":            {shared, webhook.StateRetrying, "fanout/it", "fanout/before"},
		"a shared one, delivered": {shared, webhook.StateDelivered, "fanout/it", "fanout/it"},
		"a shared one, dead":      {shared, webhook.StateDeadLettered, "dead/fanout/it/0", "fanout/before"},
	} {
		for _, eager := range []bool{true, false} {
			unrecorded := webhook.Step{WorkflowID: "fanout/before", KeepOutbox: eager}
			unrecorded.State = c.state
			out := decide(c.in, &facts{unrecorded: &unrecorded}, time.Now())
			require.Equal(t, map[bool]string{true: c.eager, false: c.other}[eager], out.step.WorkflowID, name)
			require.False(t, out.step.KeepOutbox, name)
			require.Equal(t, eager, unrecorded.KeepOutbox, "%s: it is pure", name)
		}
	}
}

// The clock of a held delivery stands still until the step that ends the hold, and never for longer than it may.
func TestTheClockStandsStill(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	target := &webhook.Target{Endpoint: webhook.Endpoint{TenantID: "acme", State: webhook.EndpointPaused, RetryPolicy: retry.Default()}}
	in := AttemptInput{
		Ref:      webhook.Ref{TenantID: "acme"},
		Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateRetrying, Attempts: 1, RunAttempts: 1, GiveUpAt: now.Add(time.Hour)},
	}
	held := decide(in, &facts{target: target, maxHeld: maxHeld}, now).step
	require.Equal(t, webhook.StateHeld, held.State)
	require.Equal(t, []time.Time{now, now.Add(maxHeld), now.Add(maxHeld)}, []time.Time{held.HeldAt, held.HeldUntil, held.Expires()})
	require.Equal(t, in.GiveUpAt, held.GiveUpAt)

	in.Progress, now = held.Progress, now.Add(100*time.Hour)
	again := decide(in, &facts{target: target, maxHeld: maxHeld}, now).step
	require.Equal(t, 100*time.Hour, again.HeldFor, "it goes on from where it was")
	require.Equal(t, in.GiveUpAt.Add(100*time.Hour), again.GiveUpAt)
	require.Equal(t, now.Add(maxHeld-100*time.Hour), again.HeldUntil)

	in.Progress, now = again.Progress, now.Add(10*time.Hour)
	target.State = webhook.EndpointActive
	failed := webhook.Attempt{StartedAt: now, Outcome: retry.Outcome{Decision: retry.Retry, Reason: "http_503"}}
	next := decide(in, &facts{target: target, answered: true, made: failed}, now).step
	require.Equal(t, webhook.StateRetrying, next.State)
	require.Equal(t, 110*time.Hour, next.HeldFor)
	require.True(t, next.HeldAt.IsZero() && next.HeldUntil.IsZero(), "it runs")
	require.Equal(t, now.Add(time.Hour), next.GiveUpAt, "an hour is left, as when it was held")
	require.Equal(t, next.GiveUpAt, next.Expires())
	require.Equal(t, now.Add(-110*time.Hour-71*time.Hour), next.BeganAt(72*time.Hour))

	// Behind others, it runs.
	waiting := decide(in, &facts{target: target, maxHeld: maxHeld, refusal: &admission.Decision{Reason: webhook.ReasonBacklog}}, now).step
	require.True(t, waiting.HeldAt.IsZero())
	require.Equal(t, now.Add(time.Hour), waiting.GiveUpAt)
	require.Equal(t, waiting.GiveUpAt, waiting.HeldUntil)
}
