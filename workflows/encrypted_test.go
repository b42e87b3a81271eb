package workflows_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/codec"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/workflows"
)

// Histories from before encryption was switched on replay with the codec, and so do all of them encrypted, also after the
// key was rotated. Without the codec the encrypted ones do not.
func TestEncryptedHistoriesReplay(t *testing.T) {
	t.Parallel()
	old, err := vault.ParseOldKEK("K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk=")
	require.NoError(t, err)
	current, err := vault.ParseOldKEK("7Z0J3Qh4V0m5oS9yXnq2b8tKcRrW1uEfAaLlDdGgHhM=")
	require.NoError(t, err)
	before, after := codec.New(vault.New(old), true), codec.New(vault.New(current, old), true)
	encrypted := histories(t)
	for name, history := range histories(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
			id := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId()
			options := sdk.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: id}}
			decrypting := replayerWith(t, after)
			require.NoError(t, decrypting.ReplayWorkflowHistoryWithOptions(log, history, options))

			sealed := encrypted[name]
			require.NoError(t, proxy.VisitPayloads(t.Context(), sealed, proxy.VisitPayloadsOptions{
				SkipSearchAttributes: true,
				Visitor: func(_ *proxy.VisitPayloadsContext, p []*commonpb.Payload) ([]*commonpb.Payload, error) {
					return before.Encode(p)
				},
			}))
			require.NoError(t, decrypting.ReplayWorkflowHistoryWithOptions(log, sealed, options))
			require.Error(t, replayer().ReplayWorkflowHistoryWithOptions(log, sealed, options))
		})
	}
}

func replayerWith(t *testing.T, c converter.PayloadCodec) sdk.WorkflowReplayer {
	t.Helper()
	r, err := sdk.NewWorkflowReplayerWithOptions(sdk.WorkflowReplayerOptions{
		DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c),
	})
	require.NoError(t, err)
	r.RegisterWorkflow(workflows.DeliveryWorkflow)
	r.RegisterWorkflow(workflows.DeadLetterWorkflow)
	r.RegisterWorkflow(workflows.ReplayWorkflow)
	r.RegisterWorkflow(workflows.TenantDeletionWorkflow)
	return r
}
