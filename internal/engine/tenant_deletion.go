package engine

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

// TenantDeletions starts the workflows that delete tenants, and deletes the workflows of tenants.
type TenantDeletions struct {
	client    client.Client
	namespace string
	calls     *Calls
}

// WakeTenantDeletion starts the workflow that deletes a tenant. If that fails, the reconciler repeats it.
func (d *TenantDeletions) WakeTenantDeletion(_ context.Context, tenantID string) {
	d.calls.Async(func(ctx context.Context) error { return d.Start(ctx, tenantID) }) //nolint:contextcheck // the caller is answered before
}

// Start starts the workflow that deletes a tenant, unless it runs. It has no search attribute, because it deletes the workflows that
// have the tenant's.
func (d *TenantDeletions) Start(ctx context.Context, tenantID string) error {
	_, err := d.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.TenantDeletionID(tenantID), TaskQueue: workflows.TaskQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            "removes everything of tenant " + tenantID,
	}, workflows.TenantDeletionWorkflow, workflows.TenantDeletionInput{TenantID: tenantID})
	return ignoreAlreadyStarted(err)
}

// DeleteWorkflows deletes workflows of a tenant, running or closed, and returns how many; 0 when Temporal lists none. A
// shared workflow with deliveries of several tenants is not among them.
func (d *TenantDeletions) DeleteWorkflows(ctx context.Context, tenantID string) (int64, error) {
	found, err := d.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: d.namespace, PageSize: deletedWorkflows, Query: workflows.AttributeTenantID + " = '" + tenantID + "'",
	})
	if err != nil {
		return 0, err //nolint:wrapcheck // the activity names the tenant
	}
	var failed []error
	for _, one := range found.GetExecutions() {
		_, err := d.client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: d.namespace, WorkflowExecution: one.GetExecution(),
		})
		if err != nil && !isGone(err) {
			failed = append(failed, err)
		}
	}
	return int64(len(found.GetExecutions())), errors.Join(failed...)
}
