package app

import (
	"context"
	"net/url"
	"time"

	"go.temporal.io/api/workflowservice/v1"
)

const (
	// retentionEvery is how often the retention of Temporal's namespace is read: it hardly ever changes.
	retentionEvery = 10 * time.Minute
	// retentionAgain is how soon a read that failed is repeated.
	retentionAgain = 10 * time.Second
	// retentionTimeout bounds one read.
	retentionTimeout = 10 * time.Second
)

// workflowURL is a workflow's page in the Web UI.
func (a *App) workflowURL(id string) string {
	if a.options.UIURL == "" {
		return ""
	}
	return a.options.UIURL + "/namespaces/" + url.PathEscape(NamespaceName(a.options.Temporal)) + "/workflows/" + url.PathEscape(id)
}

// workflowsKept is for how long the Web UI shows a workflow that has ended; 0 if that is not known.
func (a *App) workflowsKept() time.Duration {
	if a.options.WorkflowsKept > 0 {
		return a.options.WorkflowsKept
	}
	return time.Duration(a.retention.Load())
}

// watchRetention keeps the namespace's retention until ctx ends.
func (a *App) watchRetention(ctx context.Context) {
	for {
		pause := retentionAgain
		if kept, err := a.readRetention(ctx); err != nil {
			a.log.DebugContext(ctx, "the retention of Temporal's namespace is not known", "error", err)
		} else {
			a.retention.Store(int64(kept))
			pause = retentionEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (a *App) readRetention(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, retentionTimeout)
	defer cancel()
	found, err := a.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: NamespaceName(a.options.Temporal)})
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller names what was read
	}
	return found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), nil
}
