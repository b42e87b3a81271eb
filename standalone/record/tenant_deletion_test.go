package record_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/workflows"
)

// tenantDeletionBranches come last: the tenant of all branches is gone after them.
func tenantDeletionBranches() []branch {
	return []branch{{"tenant-deletion", func(t *testing.T, i *installation) delivery {
		t.Helper()
		d := i.post(t, "100ms", time.Time{}, fine)
		d.awaits(t, "delivered")
		i.call(t, http.MethodDelete, "?everything=true", nil)
		d.workflowID = workflows.TenantDeletionID("acme")
		await(t, func() bool {
			_, err := i.temporal.DescribeWorkflowExecution(t.Context(), d.workflowID, "")
			return err == nil
		})
		require.NoError(t, i.temporal.GetWorkflow(t.Context(), d.workflowID, "").Get(t.Context(), nil))
		return d
	}}}
}
