package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// send sends a signal as the Web UI does: with the input as it was written, or with none.
func (u *webUI) send(workflow, name, input string) {
	u.t.Helper()
	var written any
	if input != "" {
		written = json.RawMessage(input)
	}
	u.signal(workflow, name, written)
}

// Every signal of the page has the effect that the page says.
func TestSignalsOfTheWebUI(t *testing.T) {
	t.Parallel()
	u := setupWebUI(t)
	rows := tableOf(t, "Signals by hand")
	require.Len(t, rows, 18, "a new one needs a case below")
	for _, row := range rows {
		target, name, input := row[0], row[1], row[2]
		at := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
		input = strings.ReplaceAll(input, "2026-02-01T09:30:00Z", at.Format(time.RFC3339))
		switch target {
		case "an open delivery":
			d := u.open()
			u.send(d.WorkflowID, name, input)
			u.requireHandled(d, name, input, at)
		case "a dead letter":
			d := u.deadLetter()
			u.send(d.WorkflowID, name, input)
			u.requireHandled(d, name, input, at)
		case "a shared workflow":
			u.requireSharedHandles(name, input, at)
		case "dead letters that share a workflow":
			workflow, members := u.sharedDeadLetters()
			u.send(workflow, name, strings.ReplaceAll(input, "<delivery>", members[0].ID))
			u.requireHandled(members[0], name, input, at)
			require.Equal(t, "dead_lettered", u.delivery(members[1].ID).State)
			u.send(workflow, name, "")
			for _, d := range members[1:] {
				u.requireHandled(d, name, "", at)
			}
		case "a replay":
			u.requireReplayHandles(name, input)
		default:
			require.Fail(t, "unknown", target)
		}
	}
	require.Empty(t, u.refused())
}

// requireHandled requires the effect of a signal to a delivery.
func (u *webUI) requireHandled(d delivery, name, input string, at time.Time) {
	u.t.Helper()
	switch name {
	case "cancel":
		reason := "cancelled"
		if input != "" {
			reason = "ordered by mistake"
		}
		require.Equal(u.t, reason, text(u.waitState(d.ID, "cancelled").Reason))
	case "retry-now":
		require.Equal(u.t, d.Attempts+1, u.waitState(d.ID, "delivered").Attempts)
	case "reschedule":
		eventually(contextFor(u.t, patience), u.t, func() string {
			if d = u.delivery(d.ID); d.NextAttemptAt.IsZero() || !d.NextAttemptAt.Equal(at) {
				return "it was not rescheduled"
			}
			return ""
		})
	case "replay":
		require.Equal(u.t, 2, u.waitState(d.ID, "delivered").Run)
	case "discard":
		reason := "discarded"
		if input != "" {
			reason = "not needed"
		}
		require.Equal(u.t, reason, text(u.waitState(d.ID, "discarded").Reason))
	default:
		require.Fail(u.t, "unknown", name)
	}
}

// requireSharedHandles requires the effect of a signal to a shared workflow: on one of its deliveries, or on each.
func (u *webUI) requireSharedHandles(name, input string, at time.Time) {
	u.t.Helper()
	workflow, members := u.shared()
	u.send(workflow, name, strings.ReplaceAll(input, "<delivery>", members[0].ID))
	if input == "" {
		for _, d := range members {
			u.requireHandled(d, name, input, at)
			require.Equal(u.t, workflow, u.delivery(d.ID).WorkflowID)
		}
		return
	}
	u.requireHandled(members[0], name, input, at)
	require.Equal(u.t, workflow, u.delivery(members[0].ID).WorkflowID)
	other := u.delivery(members[1].ID)
	require.Equal(u.t, []string{"retrying", workflow}, []string{other.State, other.WorkflowID})
}

// pacedReplay is a replay that goes on for a while.
func (u *webUI) pacedReplay() replay {
	u.t.Helper()
	d := u.deadLetter()
	made := u.makeReplay(fieldsOf{"source": "dead_letters", "endpoint_id": d.EndpointID, "rate_per_minute": 1})
	u.waitDetails(made.WorkflowID, "**running** · replay of dead_letters to "+d.EndpointID)
	return made
}

// requireReplayHandles requires the effect of a signal to a replay.
func (u *webUI) requireReplayHandles(name, input string) {
	u.t.Helper()
	r := u.pacedReplay()
	until := func(want string, is func(replay) bool) {
		u.t.Helper()
		eventually(contextFor(u.t, patience), u.t, func() string {
			var now replay
			u.ask(http.StatusOK, http.MethodGet, "/replays/"+r.ID, nil, &now)
			if !is(now) {
				return "the replay is " + now.State + ", not " + want
			}
			return ""
		})
	}
	inState := func(state string) { u.t.Helper(); until(state, func(r replay) bool { return r.State == state }) }
	switch name {
	case "pause":
		u.send(r.WorkflowID, name, input)
		until("paused", func(r replay) bool { return r.State == "paused" && text(r.StateReason) == "too much at once" })
	case "resume":
		u.send(r.WorkflowID, "pause", "")
		inState("paused")
		u.send(r.WorkflowID, name, input)
		inState("running")
	case "set-rate":
		u.send(r.WorkflowID, name, input)
		until("600 per minute", func(r replay) bool { return r.Rate == 600 })
	case "cancel":
		u.send(r.WorkflowID, name, input)
		inState("cancelled")
	default:
		require.Fail(u.t, "unknown", name)
	}
}

// ignored is an entry of the audit log.
type ignored struct {
	Actor   string `json:"actor"`
	Subject string `json:"subject"`
	Detail  struct {
		Source   string `json:"source"`
		Signal   string `json:"signal"`
		Reason   string `json:"reason"`
		Workflow string `json:"workflow_id"`
	} `json:"detail"`
}

// refused are the ignored signals in the audit log, newest first.
func (u *webUI) refused() []ignored {
	u.t.Helper()
	got, err := u.client.call(contextFor(u.t, patience), http.MethodGet, "/v1/audit?action=workflow.refuse_signal&limit=100", nil)
	require.NoError(u.t, err)
	require.Equal(u.t, http.StatusOK, got.status, "%s", got.body)
	var all page[ignored]
	require.NoError(u.t, got.into(&all))
	return all.Data
}

// Every signal that the page calls ignored changes nothing, and is in the details and in the audit log.
func TestIgnoredSignalsOfTheWebUI(t *testing.T) {
	t.Parallel()
	u := setupWebUI(t)
	for n, row := range tableOf(t, "Signals that are ignored") {
		target, name, input, reason := row[0], row[1], row[2], row[3]
		var workflow, subject string
		var before []delivery
		switch target {
		case "an open delivery":
			before = []delivery{u.open()}
			workflow, subject = before[0].WorkflowID, before[0].ID
		case "a dead letter":
			before = []delivery{u.deadLetter()}
			workflow, subject = before[0].WorkflowID, before[0].ID
		case "a shared workflow":
			workflow, before = u.shared()
			subject = workflow
		case "a replay":
			r := u.pacedReplay()
			workflow, subject = r.WorkflowID, r.ID
		default:
			require.Fail(t, "unknown", target)
		}
		for range 3 {
			u.send(workflow, name, input)
		}
		u.waitDetails(workflow, "\nSignals that were ignored:\n\n- `"+name+"` at ")
		u.waitDetails(workflow, reason)
		u.waitDetails(workflow, ", 3 times: ")
		for _, d := range before {
			require.Equal(t, wordless(d), wordless(u.delivery(d.ID)), "%s to %s", name, target)
		}
		all := u.refused()
		require.Len(t, all, n+1, "once each, however often it was sent")
		entry := all[0]
		require.Equal(t, []string{"workflow", subject, "workflow signal", name, workflow},
			[]string{entry.Actor, entry.Subject, entry.Detail.Source, entry.Detail.Signal, entry.Detail.Workflow})
		require.Contains(t, entry.Detail.Reason, reason)
	}
}
