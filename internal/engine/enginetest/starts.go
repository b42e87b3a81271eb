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

// MemberOf is the only delivery with which a DeliveryWorkflow was started.
func MemberOf(t *testing.T, request *workflowservice.StartWorkflowExecutionRequest) *workflows.Member {
	t.Helper()
	members := MembersOf(t, request)
	require.Len(t, members, 1)
	return members[0]
}

// MembersOf are the deliveries with which a DeliveryWorkflow was started.
func MembersOf(t *testing.T, request *workflowservice.StartWorkflowExecutionRequest) []*workflows.Member {
	t.Helper()
	return InputOf[workflows.DeliveryInput](t, request.GetInput()).Members
}

// Groups are the deliveries of the shared workflows that were started, and those that
// got their own.
func Groups(t *testing.T, f *Frontend) (shared [][]*workflows.Member, own []*workflows.Member) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.Starts {
		if workflows.IsShared(request.GetWorkflowId()) {
			shared = append(shared, MembersOf(t, request))
		} else {
			own = append(own, MemberOf(t, request))
		}
	}
	return shared, own
}

// Begun are the deliveries of all starts, in their order.
func Begun(t *testing.T, f *Frontend) (refs []webhook.Ref) {
	t.Helper()
	shared, own := Groups(t, f)
	for _, group := range append(shared, own) {
		for _, m := range group {
			refs = append(refs, m.Ref)
		}
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
