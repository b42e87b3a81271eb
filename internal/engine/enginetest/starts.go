package enginetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

// InputOf is the input of a workflow or a signal.
func InputOf[T any](t *testing.T, payloads *commonpb.Payloads) T {
	t.Helper()
	var input T
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(payloads, &input))
	return input
}

// Groups are the deliveries of the shared workflows that were started, and those that
// got their own.
func Groups(t *testing.T, f *Frontend) (shared [][]workflows.FanoutDelivery, own []workflows.DeliveryInput) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.Starts {
		if request.GetWorkflowType().GetName() == "FanoutWorkflow" {
			shared = append(shared, InputOf[workflows.FanoutInput](t, request.GetInput()).Deliveries)
		} else {
			own = append(own, InputOf[workflows.DeliveryInput](t, request.GetInput()))
		}
	}
	return shared, own
}

// Begun are the deliveries of all starts, in their order.
func Begun(t *testing.T, f *Frontend) (refs []webhook.Ref) {
	t.Helper()
	shared, own := Groups(t, f)
	for _, group := range shared {
		refs = append(refs, refsOfShared(group)...)
	}
	return append(refs, refsOfOwn(own)...)
}

func refsOfShared(group []workflows.FanoutDelivery) (refs []webhook.Ref) {
	for _, delivery := range group {
		refs = append(refs, delivery.Ref)
	}
	return refs
}

func refsOfOwn(own []workflows.DeliveryInput) (refs []webhook.Ref) {
	for _, one := range own {
		refs = append(refs, one.Ref)
	}
	return refs
}

// StartedIDs are the workflows that were started.
func StartedIDs(f *Frontend) map[string]bool {
	all := map[string]bool{}
	for _, request := range f.Started() {
		all[request.GetWorkflowId()] = true
	}
	return all
}

// IsProbe reports a start that only tests whether Temporal can be written to.
func IsProbe(in *workflowservice.StartWorkflowExecutionRequest) bool {
	return in.GetWorkflowType().GetName() == workflows.ProbeName
}

// Pass lets time pass, by the clock of a synctest bubble, and waits until all in it rests.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// LetPass lets time pass, by the bubble's clock.
func LetPass(d time.Duration) { <-time.After(d) }

// The statuses of workflows that tests use.
const (
	Running    = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	Completed  = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	Terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
)
