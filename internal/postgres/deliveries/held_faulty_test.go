package deliveries_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// A shared workflow takes over the deliveries that the store names for the other one, and nothing else.
func TestTakeOverOfSharedWorkflows(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	record := func(state webhook.State, workflow string) webhook.DeliveryID {
		t.Helper()
		start := b.AcceptOne(t)
		step := storetest.StepOf(start, 1, state)
		step.WorkflowID, step.DueAt = workflow, time.Now().Add(time.Hour)
		_, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		return start.DeliveryID
	}
	open, delivered, elsewhere := record(webhook.StateRetrying, one), record(webhook.StateDelivered, one), record(webhook.StateRetrying, "fanout/other")
	unnamed := record(webhook.StateRetrying, one) // without a command
	left, err := b.TakeOver(t.Context(), one, "fanout/new", []webhook.DeliveryID{open, delivered, elsewhere, b.AcceptOne(t).DeliveryID})
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, open, left[0].DeliveryID)
	require.Equal(t, "fanout/new", left[0].WorkflowID)
	require.Equal(t, 1, left[0].Seq)
	require.Equal(t, webhook.StateRetrying, left[0].State)
	for id, want := range map[webhook.DeliveryID]string{open: "fanout/new", delivered: one, elsewhere: "fanout/other", unnamed: one} {
		status, err := b.Delivery(context.WithoutCancel(t.Context()), "acme", id)
		require.NoError(t, err)
		require.Equal(t, want, status.WorkflowID)
	}
}

// Secrets that cannot be decrypted give another error than a database that is not available.
func TestTargetThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	_, err := b.Pool().Exec(t.Context(), `update endpoint_secrets set ciphertext = 'altered' where endpoint_id = $1`, b.Subscriber.ID)
	require.NoError(t, err)
	_, err = b.Target(t.Context(), b.Subscriber.ID)
	require.ErrorIs(t, err, webhook.ErrNotOpened)
	require.Equal(t, webhook.CodeInternal, webhook.CodeOf(err))
	require.ErrorContains(t, err, "a secret, header or credential of the endpoint cannot be decrypted")
}

// A hold gives up the process's own claim, whatever its reason: the delivery can be released at once.
func TestAHoldGivesUpTheOwnClaim(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	for _, reason := range []string{webhook.ReasonInternal, webhook.ReasonBacklog, webhook.ReasonPaused, webhook.ReasonDisabled} {
		start := b.AcceptOne(t)
		claim := storetest.ClaimOf(start, 0, "me", time.Minute)
		claim.WorkflowID = one
		begun, err := b.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.True(t, begun.Granted)
		step := storetest.StepOf(start, 1, webhook.StateHeld)
		step.Reason, step.Claimant, step.WorkflowID = reason, "me", storetest.NoWorkflow
		status, err := b.RecordStep(t.Context(), step)
		require.NoError(t, err)
		require.Equal(t, webhook.StateHeld, status.State)
		require.Equal(t, []webhook.DeliveryID{start.DeliveryID}, b.Releasable(t), reason)
		_, err = b.Pool().Exec(t.Context(), `update deliveries set state = 3`)
		require.NoError(t, err)
	}
}
