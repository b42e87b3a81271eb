package temporald

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// readyInterval is how often the server is asked again whether it is ready.
	readyInterval = 10 * time.Millisecond

	// readyTimeout bounds how long it is asked. The slowest step is another process's leftover
	// range of a history shard; that takes seconds.
	readyTimeout = time.Minute
)

// provision waits for the server, makes the namespace and its search attributes, and waits until
// they can be used. It returns the columns that hold the search attributes of this namespace.
func (s *Server) provision(ctx context.Context, o Options) ([]string, error) {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial Temporal: %w", err)
	}
	defer func() { _ = conn.Close() }()
	p := provisioner{
		server:    s,
		workflow:  workflowservice.NewWorkflowServiceClient(conn),
		operator:  operatorservice.NewOperatorServiceClient(conn),
		namespace: o.Namespace,
	}
	if err := p.ensureNamespace(ctx, o.Retention); err != nil {
		return nil, err
	}
	if err := p.ensureSearchAttributes(ctx, o.SearchAttributes); err != nil {
		return nil, err
	}
	if err := p.awaitUse(ctx, slices.Sorted(maps.Keys(o.SearchAttributes))); err != nil {
		return nil, err
	}
	return p.columns(ctx)
}

type provisioner struct {
	server    *Server
	workflow  workflowservice.WorkflowServiceClient
	operator  operatorservice.OperatorServiceClient
	namespace string
}

// await asks until the answer is no error, or one that asking again does not mend.
func (p provisioner) await(ctx context.Context, what string, retry func(error) bool, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if !isPassing(err) && !retry(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-p.server.Done():
			return fmt.Errorf("%s: %w", what, p.server.Err())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

func never(error) bool { return false }

// isPassing tells an error that a server gives while it starts.
func isPassing(err error) bool {
	var (
		unavailable *serviceerror.Unavailable
		exhausted   *serviceerror.ResourceExhausted
		deadline    *serviceerror.DeadlineExceeded
	)
	err = serviceerror.FromStatus(serviceerror.ToStatus(err))
	return errors.As(err, &unavailable) || errors.As(err, &exhausted) || errors.As(err, &deadline)
}

func isError[T error](err error) bool {
	var want T
	return errors.As(serviceerror.FromStatus(serviceerror.ToStatus(err)), &want)
}

// ensureNamespace makes the namespace, or sets its retention.
func (p provisioner) ensureNamespace(ctx context.Context, retention time.Duration) error {
	var found *workflowservice.DescribeNamespaceResponse
	err := p.await(ctx, "look for namespace "+p.namespace, never, func(ctx context.Context) (err error) {
		found, err = p.workflow.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: p.namespace})
		if isError[*serviceerror.NamespaceNotFound](err) {
			found, err = nil, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if found == nil {
		return p.await(ctx, "make namespace "+p.namespace, never, func(ctx context.Context) error {
			_, err := p.workflow.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
				Namespace:                        p.namespace,
				Description:                      "Everpost",
				WorkflowExecutionRetentionPeriod: durationpb.New(retention),
			})
			if isError[*serviceerror.NamespaceAlreadyExists](err) {
				return nil // by the try before, whose answer was lost
			}
			return err //nolint:wrapcheck // await wraps it
		})
	}
	if found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() == retention {
		return nil
	}
	return p.await(ctx, "set retention of namespace "+p.namespace, never, func(ctx context.Context) error {
		_, err := p.workflow.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: p.namespace,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
		})
		return err //nolint:wrapcheck // await wraps it
	})
}

// ensureSearchAttributes makes the search attributes that are missing.
func (p provisioner) ensureSearchAttributes(ctx context.Context, want map[string]enumspb.IndexedValueType) error {
	if len(want) == 0 {
		return nil
	}
	var has map[string]enumspb.IndexedValueType
	err := p.await(ctx, "list search attributes", isError[*serviceerror.NamespaceNotFound], func(ctx context.Context) error {
		list, err := p.operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: p.namespace})
		has = list.GetCustomAttributes()
		return err //nolint:wrapcheck // await wraps it
	})
	if err != nil {
		return err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, kind := range want {
		switch existing, ok := has[name]; {
		case !ok:
			missing[name] = kind
		case existing != kind:
			return fmt.Errorf("search attribute %s: the namespace has it as %s, not %s", name, existing, kind)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return p.await(ctx, "make search attributes", isError[*serviceerror.NamespaceNotFound], func(ctx context.Context) error {
		_, err := p.operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: p.namespace, SearchAttributes: missing,
		})
		return err //nolint:wrapcheck // await wraps it
	})
}

// awaitUse returns when workflows can be started and found by every search attribute. Parts of the
// server read the namespace anew every 2 s only.
func (p provisioner) awaitUse(ctx context.Context, attributes []string) error {
	conditions := make([]string, len(attributes))
	for i, name := range attributes {
		conditions[i] = name + " IS NULL"
	}
	query := strings.Join(conditions, " AND ")
	retry := func(err error) bool {
		return isError[*serviceerror.NamespaceNotFound](err) || isError[*serviceerror.InvalidArgument](err)
	}
	err := p.await(ctx, "wait for search attributes", retry, func(ctx context.Context) error {
		_, err := p.workflow.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: p.namespace, Query: query,
		})
		return err //nolint:wrapcheck // await wraps it
	})
	if err != nil {
		return err
	}
	return p.await(ctx, "wait for history", retry, func(ctx context.Context) error {
		_, err := p.workflow.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: p.namespace,
			Execution: &commonpb.WorkflowExecution{WorkflowId: "everpost-is-it-ready"},
		})
		if isError[*serviceerror.NotFound](err) {
			return nil // the shard has looked, and there is none
		}
		return err //nolint:wrapcheck // await wraps it
	})
}

// columns returns the columns of the visibility table that search attributes of the namespace are
// mapped to. Names made by others, in the Web UI for one, count as well.
func (p provisioner) columns(ctx context.Context) ([]string, error) {
	namespace, err := p.workflow.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: p.namespace})
	if err != nil {
		return nil, fmt.Errorf("read search attributes of namespace %s: %w", p.namespace, err)
	}
	return slices.Sorted(maps.Keys(namespace.GetConfig().GetCustomSearchAttributeAliases())), nil
}
