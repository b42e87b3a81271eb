package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// tripped is an endpoint whose circuit is open for minutes, with two deliveries that have opened
// it and wait for an hour, and one that was put off before its first attempt.
func tripped(t *testing.T) (b *bundle, r *receiver, ep endpoint, failed []delivery, putOff delivery) {
	t.Helper()
	b, r = setup(t), newReceiver(t)
	r.Script("/hook", receivertest.Step{Status: http.StatusServiceUnavailable}, receivertest.Step{Status: http.StatusServiceUnavailable})
	ep = b.endpoint(r, "/hook", fieldsOf{"retry_policy": patiently(), "circuit_breaker": fieldsOf{"min_requests": 2, "cooldown": "5m"}})
	for range 2 {
		_, d := b.postOne("order.paid", `{}`)
		failed = append(failed, b.waitState(d.ID, "retrying"))
	}
	b.waitOpened(ep)
	_, putOff = b.postOne("order.paid", `{}`)
	eventually(contextFor(t, patience), t, func() string {
		if putOff = b.delivery(putOff.ID); text(putOff.Reason) == "circuit_open" {
			return ""
		}
		return fmt.Sprintf("it is %s (%s)", putOff.State, text(putOff.Reason))
	})
	require.Equal(t, "pending", putOff.State)
	b.waitCircuit(ep, "open")
	return b, r, ep, failed, putOff
}

// waitOpened waits, in a fleet, until the circuit is open of an endpoint whose failures are recorded. A worker waits for 100 ms at the longest
// until the owner of the lane knows of a failure before it records it. A process that admits by itself knows first.
func (b *bundle) waitOpened(ep endpoint) {
	b.t.Helper()
	if b.in.fleet != nil {
		b.waitCircuit(ep, "open")
	}
}

// waitCircuit waits until an endpoint's circuit is in a state.
func (b *bundle) waitCircuit(ep endpoint, state string) {
	b.t.Helper()
	var health struct {
		Circuit struct {
			State string `json:"state"`
		} `json:"circuit"`
	}
	eventually(contextFor(b.t, patience), b.t, func() string {
		b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+ep.ID+"/health", nil, &health)
		if health.Circuit.State == state {
			return ""
		}
		return "the circuit is " + health.Circuit.State + ", not " + state
	})
}

// What a person retries while the circuit is open is the probe, also before its first attempt.
func TestRetryWithAnOpenCircuit(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{"retry": "retry", "reschedule to now": "reschedule"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r, ep, _, putOff := tripped(t)
			body := any(nil)
			if command == "reschedule" {
				body = fieldsOf{"at": "2026-01-01T00:00:00Z"}
			}
			b.command(http.StatusAccepted, putOff.ID, command, body)
			require.Equal(t, 1, b.waitState(putOff.ID, "delivered").Attempts)
			b.waitCircuit(ep, "closed")
			require.Equal(t, 3, r.Count())
		})
	}
}

// While one request is the probe, a retry of another is refused, with what it would wait for.
func TestRetryWhileAnotherIsTheProbe(t *testing.T) {
	t.Parallel()
	b, r, ep, failed, putOff := tripped(t)
	r.Hold()
	b.command(http.StatusAccepted, putOff.ID, "retry", nil)
	require.NoError(t, r.WaitHeld(contextFor(t, patience), 1))
	b.waitCircuit(ep, "half_open")
	var refused struct {
		State    string `json:"state"`
		WaitsFor string `json:"waits_for"`
		Until    string `json:"until"`
	}
	require.NoError(t, b.command(http.StatusConflict, failed[0].ID, "retry", nil).into(&refused))
	require.Equal(t, []string{"retrying", "circuit_open"}, []string{refused.State, refused.WaitsFor})
	require.NotEmpty(t, refused.Until)
	b.ask(http.StatusConflict, http.MethodPost, "/endpoints/"+ep.ID+"/close-circuit", nil, nil)
	r.Release()
	b.waitState(putOff.ID, "delivered")
	b.command(http.StatusAccepted, failed[0].ID, "retry", nil)
	b.waitState(failed[0].ID, "delivered")
}

// A person closes the circuit: the oldest that waits is tried at once.
func TestCloseCircuit(t *testing.T) {
	t.Parallel()
	b, r, ep, failed, _ := tripped(t)
	var closed struct {
		ProbeDeliveryID string `json:"probe_delivery_id"`
	}
	b.ask(http.StatusOK, http.MethodPost, "/endpoints/"+ep.ID+"/close-circuit", nil, &closed)
	require.Equal(t, failed[0].ID, closed.ProbeDeliveryID)
	require.Equal(t, 2, b.waitState(failed[0].ID, "delivered").Attempts)
	b.waitCircuit(ep, "closed")
	require.Equal(t, 3, r.Count())
	b.ask(http.StatusConflict, http.MethodPost, "/endpoints/"+ep.ID+"/close-circuit", nil, nil)
}

// A delivery that is cancelled after its workflow was terminated by hand ends cancelled.
func TestCancelledAfterItsWorkflowWasTerminated(t *testing.T) {
	t.Parallel()
	b, r, d := waiting(t)
	require.NoError(t, b.in.temporal(t).TerminateWorkflow(contextFor(t, patience), d.WorkflowID, "", "by hand"))
	b.command(http.StatusAccepted, d.ID, "cancel", fieldsOf{"reason": "not any more"})
	d = b.waitStateIn(contextFor(t, longRecovery), d.ID, "cancelled") // by the relay's second signal, which finds no workflow either
	require.Equal(t, "not any more", text(d.Reason))
	require.Equal(t, 1, r.Count())
}
