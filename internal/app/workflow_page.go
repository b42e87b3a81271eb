package app

import (
	"context"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

const (
	// retentionEvery is how often the retention of Temporal's namespace is read: it hardly ever changes.
	retentionEvery = 10 * time.Minute
	// retentionAgain is how soon a read that failed is repeated.
	retentionAgain = 10 * time.Second
	// retentionTimeout bounds one read.
	retentionTimeout = 10 * time.Second
)

// workflowPages are the pages of workflows in the Temporal Web UI.
type workflowPages struct {
	ui        string // its address, "" without one
	namespace string
	client    client.Client
	log       *slog.Logger

	always    time.Duration // Options.WorkflowsKept
	retention atomic.Int64  // of the namespace, in ns; 0 while it is not known
}

// url is a workflow's page.
func (p *workflowPages) url(id string) string {
	if p.ui == "" {
		return ""
	}
	return p.ui + "/namespaces/" + url.PathEscape(p.namespace) + "/workflows/" + url.PathEscape(id)
}

// kept is for how long the Web UI shows a workflow that has ended; 0 if that is not known.
func (p *workflowPages) kept() time.Duration {
	if p.always > 0 {
		return p.always
	}
	return time.Duration(p.retention.Load())
}

// watch keeps the namespace's retention until ctx ends, if it is needed.
func (p *workflowPages) watch(ctx context.Context) {
	if p.ui == "" || p.always > 0 {
		return
	}
	for {
		pause := retentionAgain
		if kept, err := p.read(ctx); err != nil {
			p.log.DebugContext(ctx, "the retention of Temporal's namespace is not known", "error", err)
		} else {
			p.retention.Store(int64(kept))
			pause = retentionEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (p *workflowPages) read(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, retentionTimeout)
	defer cancel()
	found, err := p.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: p.namespace})
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller names what was read
	}
	return found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), nil
}
