package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// intruders are inputs of attempts that somebody makes up who may start workflows, of a delivery that is stored: another tenant's event to
// one's own endpoint above all.
func (b *bundle) intruders(t *testing.T, of activities.AttemptInput) map[string]activities.AttemptInput {
	t.Helper()
	_, _, err := b.store.Tenants.PutTenant(t.Context(), webhook.Actor{Name: "test"}, webhook.Tenant{ID: "intruder", Name: "Intruder"})
	require.NoError(t, err)
	own, err := b.store.Endpoints.CreateEndpoint(t.Context(), webhook.Actor{Name: "test"}, webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: "intruder", URL: b.URL() + "/intruder", EventTypes: []string{"*"}, Timeout: webhook.DefaultTimeout,
		MaxInFlight: 10, RateLimit: 10_000, RetryPolicy: retry.Default(), Signature: webhook.SignatureV1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), AutoDisable: webhook.DefaultAutoDisable(),
	}, secret)
	require.NoError(t, err)
	change := func(fits bool, edit func(*webhook.Ref)) activities.AttemptInput {
		in := of
		edit(&in.Ref)
		if fits {
			in.DeliveryID = webhook.DeliveryIDOf(in.EventID, in.EndpointID)
		}
		return in
	}
	return map[string]activities.AttemptInput{
		"one's own endpoint, as its tenant":         change(true, func(r *webhook.Ref) { r.EndpointID, r.TenantID = own.ID, "intruder" }),
		"one's own endpoint, as the event's tenant": change(true, func(r *webhook.Ref) { r.EndpointID = own.ID }),
		"one's own endpoint, the delivery's id":     change(false, func(r *webhook.Ref) { r.EndpointID, r.TenantID = own.ID, "intruder" }),
		"the endpoint, as another tenant":           change(true, func(r *webhook.Ref) { r.TenantID = "intruder" }),
		"another event":                             change(true, func(r *webhook.Ref) { r.EventID = webhook.NewEventID() }),
		"another event, the delivery's id":          change(false, func(r *webhook.Ref) { r.EventID = webhook.NewEventID() }),
		"another type of event":                     change(true, func(r *webhook.Ref) { r.EventType = "order.refunded" }),
		"an endpoint that does not exist":           change(true, func(r *webhook.Ref) { r.EndpointID = webhook.NewEndpointID() }),
		"nothing":                                   {},
	}
}

// Nothing is sent and nothing is written for a delivery that is not stored as the input says, whatever the input asks for; and it
// ends its workflow.
func TestOnlyStoredDeliveriesAreAttempted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.process(t, nil)
	stored := b.stored(t)
	fresh := b.fresh(t, p)
	for _, of := range []activities.AttemptInput{stored, fresh} {
		for name, in := range b.intruders(t, of) {
			for kind, edit := range map[string]func(*activities.AttemptInput){
				"first":     func(*activities.AttemptInput) {},
				"retry":     func(in *activities.AttemptInput) { in.FirstTask, in.Seq, in.Attempts, in.RunAttempts = false, 1, 1, 1 },
				"running":   func(in *activities.AttemptInput) { in.Running = true },
				"held":      func(in *activities.AttemptInput) { in.State, in.Reason = webhook.StateHeld, webhook.ReasonPaused },
				"scheduled": func(in *activities.AttemptInput) { in.NotBefore = time.Now().Add(time.Hour) },
				"expired":   func(in *activities.AttemptInput) { in.GiveUpAt = time.Now().Add(-time.Hour) },
				"shared":    func(in *activities.AttemptInput) { in.Shared = "fanout/by-hand" },
			} {
				in := in
				edit(&in)
				got, err := p.attempt(in)
				require.NoError(t, err, "%s, %s", name, kind)
				require.Equal(t, webhook.StateCancelled, got.State, "%s, %s", name, kind)
				require.Equal(t, webhook.ReasonUnknown, got.Reason, "%s, %s", name, kind)
				joined, err := p.await(in)
				require.NoError(t, err, "%s, %s", name, kind)
				require.Equal(t, webhook.ReasonUnknown, joined.Reason, "%s, %s", name, kind)
			}
			require.Error(t, recordStep(t, p, in), name)
		}
	}
	require.Empty(t, b.Requests())
	var rows int
	require.NoError(t, b.store.Pool().QueryRow(t.Context(), `select (select count(*) from deliveries) + (select count(*) from attempts)`).Scan(&rows))
	require.Zero(t, rows)
	for _, in := range []activities.AttemptInput{stored, fresh} { // they lost nothing by that
		got, err := p.attempt(in)
		require.NoError(t, err)
		require.Equal(t, webhook.StateDelivered, got.State)
	}
}

// recordStep records what ends a delivery, as a workflow does. The error ends that workflow.
func recordStep(t *testing.T, p *process, in activities.AttemptInput) error {
	t.Helper()
	ended := webhook.Step{Ref: in.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDeadLettered}}
	_, err := p.Steps.RecordStep(t.Context(), ended)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	stored, failed := p.Steps.RecordSteps(t.Context(), []webhook.Step{ended})
	require.NoError(t, failed)
	require.Equal(t, []activities.StepResult{{Gone: true}}, stored)
	reopened, failed := p.DeadLetters.Reopen(t.Context(), []activities.Reopening{{Ref: in.Ref, Run: 1}})
	require.NoError(t, failed)
	require.Equal(t, []activities.StepResult{{Gone: true}}, reopened)
	return err
}

// A workflow records no attempts: only who has made a request does.
func TestAWorkflowRecordsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, in := b.process(t, nil), b.stored(t)
	step := webhook.Step{Ref: in.Ref, Progress: webhook.Progress{Run: 1, Seq: 1, State: webhook.StateDelivered}, Attempt: &webhook.Attempt{Number: 1, Run: 1}}
	_, err := p.Steps.RecordStep(t.Context(), step)
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	require.Empty(t, b.attempts(t, in))
}
