package temporald

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/everpost/everpost/internal/namespace"
)

const (
	// readyInterval is the pause between two tries while the server starts.
	readyInterval = 10 * time.Millisecond

	// readyTimeout bounds each step. The slowest is to take over the range of a history shard that
	// another process left; that takes seconds.
	readyTimeout = time.Minute
)

// provision waits for the server and sets up the namespace. It returns the columns that hold the
// search attributes of the namespace.
func (s *Server) provision(ctx context.Context, o Options) ([]string, error) {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial Temporal: %w", err)
	}
	defer func() { _ = conn.Close() }()
	services := namespace.Services{Workflow: workflowservice.NewWorkflowServiceClient(conn), Operator: operatorservice.NewOperatorServiceClient(conn)}

	living, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.Done():
			cancel(s.Err())
		case <-living.Done():
		}
	}()
	_, err = namespace.Ensure(living, services, namespace.Config{
		Name: o.Namespace, Attributes: o.SearchAttributes, Retention: o.Retention, Timeout: readyTimeout, Interval: readyInterval,
	})
	if err != nil {
		return nil, err
	}
	return columns(ctx, services.Workflow, o.Namespace)
}

// columns returns the columns of the visibility table that search attributes of the namespace are
// mapped to. Names made by others, in the Web UI for one, count as well.
func columns(ctx context.Context, s workflowservice.WorkflowServiceClient, name string) ([]string, error) {
	found, err := s.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err != nil {
		return nil, fmt.Errorf("read search attributes of namespace %s: %w", name, err)
	}
	return slices.Sorted(maps.Keys(found.GetConfig().GetCustomSearchAttributeAliases())), nil
}
