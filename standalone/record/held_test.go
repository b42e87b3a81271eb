package record_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// pause pauses the delivery's endpoint, resume makes it active again. The change of its
// description lets every process know. What is held stays held.
func (d delivery) pause(t *testing.T)  { t.Helper(); d.setEndpoint(t, webhook.EndpointPaused) }
func (d delivery) resume(t *testing.T) { t.Helper(); d.setEndpoint(t, webhook.EndpointActive) }

// release resumes the delivery's endpoint, which releases what it holds.
func (d delivery) release(t *testing.T) {
	t.Helper()
	d.call(t, http.MethodPost, "/endpoints/"+d.endpoint+"/resume", map[string]any{})
}

func (d delivery) setEndpoint(t *testing.T, state webhook.EndpointState) {
	t.Helper()
	id, err := webhook.ParseEndpointID(d.endpoint)
	require.NoError(t, err)
	d.exec(t, `update endpoints set state = $2 where id = $1`, [16]byte(id), int(state))
	d.call(t, http.MethodPatch, "/endpoints/"+d.endpoint, map[string]any{"description": state.String()})
}

// heldBranches are those of a delivery whose endpoint was paused while its retry was
// waited for: the run that holds it, and the one that is started for it afterwards.
func heldBranches() []branch {
	held := func(name, giveUpAfter, state string, do func(t *testing.T, d delivery)) branch {
		return branch{name, func(t *testing.T, i *installation) delivery {
			t.Helper()
			endpoint := i.newEndpoint(t, "3s", giveUpAfter, busy, fine)
			d := i.postTo(t, text(t, endpoint["id"]), time.Time{})
			d.awaits(t, "retrying")
			d.pause(t)
			d.awaits(t, "held")
			await(t, func() bool { return i.count(t, d.workflowID, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED) == 1 })
			d.earlier = i.runs(t, d.workflowID)
			do(t, d)
			d.awaits(t, state)
			return d
		}}
	}
	return []branch{
		held("held-released", "72h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.release(t)
		}),
		held("held-retried", "72h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.resume(t)
			d.do(t, "retry")
		}),
		held("held-rescheduled", "72h", "delivered", func(t *testing.T, d delivery) {
			t.Helper()
			d.resume(t)
			d.call(t, http.MethodPost, "/deliveries/"+d.id+"/reschedule", map[string]any{"at": time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)})
		}),
		held("held-cancelled", "72h", "cancelled", func(t *testing.T, d delivery) {
			t.Helper()
			d.do(t, "cancel")
		}),
		held("held-expired", "8s", "dead_lettered", func(*testing.T, delivery) {}),
	}
}

func rescheduleBranches() []branch {
	at := func() string { return time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano) }
	reschedule := func(t *testing.T, d delivery) {
		t.Helper()
		d.call(t, http.MethodPost, "/deliveries/"+d.id+"/reschedule", map[string]any{"at": at()})
	}
	return []branch{
		{"reschedule", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "1h", time.Time{}, busy, fine)
			d.awaits(t, "retrying")
			i.awaitTimer(t, d.workflowID)
			reschedule(t, d)
			d.awaits(t, "delivered")
			return d
		}},
		{"reschedule-by-hand", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "1h", time.Time{}, busy, fine)
			d.awaits(t, "retrying")
			i.awaitTimer(t, d.workflowID)
			require.NoError(t, i.temporal.SignalWorkflow(t.Context(), d.workflowID, "", workflows.SignalReschedule, at()))
			d.awaits(t, "delivered")
			return d
		}},
		{"reschedule-deliver-at", func(t *testing.T, i *installation) delivery {
			t.Helper()
			d := i.post(t, "100ms", time.Now().Add(time.Hour), fine)
			i.awaitTimer(t, d.workflowID)
			reschedule(t, d)
			d.awaits(t, "delivered")
			return d
		}},
	}
}
