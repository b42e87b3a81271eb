package starter

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/everpost/everpost/workflows"
)

// deletedWorkflows is how many workflows are deleted at a time.
const deletedWorkflows = 100

// TenantDeletions reads which tenants are being deleted.
type TenantDeletions interface {
	Deletions(ctx context.Context, limit int) (tenantIDs []string, err error)
}

// WakeTenantDeletion starts the workflow that deletes a tenant. If that fails, the reconciler repeats it.
func (s *Starter) WakeTenantDeletion(_ context.Context, tenantID string) {
	s.callAsync(func(ctx context.Context) error { return s.startTenantDeletion(ctx, tenantID) }) //nolint:contextcheck // the caller is answered before
}

// startTenantDeletion starts the workflow unless it runs. It has no search attribute, because it deletes the workflows that
// have the tenant's.
func (s *Starter) startTenantDeletion(ctx context.Context, tenantID string) error {
	_, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.TenantDeletionID(tenantID), TaskQueue: workflows.TaskQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            "removes everything of tenant " + tenantID,
	}, workflows.TenantDeletionWorkflow, workflows.TenantDeletionInput{TenantID: tenantID})
	return ignoreAlreadyStarted(err)
}

// wakeTenantDeletions starts the workflows of deletions that have none.
func (s *Starter) wakeTenantDeletions() {
	if s.deletions == nil {
		return
	}
	ids, err := readBatch(s, s.deletions.Deletions)
	if err != nil {
		return
	}
	for _, id := range ids {
		s.tryCall(func(ctx context.Context) error { return s.startTenantDeletion(ctx, id) })
	}
}

// DeleteWorkflows deletes workflows of a tenant, running or closed, and returns how many; 0 when Temporal lists none. A
// shared workflow with deliveries of several tenants is not among them.
func (s *Starter) DeleteWorkflows(ctx context.Context, tenantID string) (int64, error) {
	found, err := s.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.namespace, PageSize: deletedWorkflows, Query: workflows.AttributeTenantID + " = '" + tenantID + "'",
	})
	if err != nil {
		return 0, err //nolint:wrapcheck // the activity names the tenant
	}
	var failed []error
	for _, one := range found.GetExecutions() {
		_, err := s.client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: s.namespace, WorkflowExecution: one.GetExecution(),
		})
		if err != nil && !isGone(err) {
			failed = append(failed, err)
		}
	}
	return int64(len(found.GetExecutions())), errors.Join(failed...)
}
