// Package namespace sets up Everpost's namespace in Temporal: the namespace itself, its retention, and
// the search attributes by which the Temporal Web UI finds workflows.
package namespace

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
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/everpost/everpost/workflows"
)

// DefaultRetention is how long a namespace keeps closed workflows if nothing else is set.
const DefaultRetention = 24 * time.Hour

// Attributes are search attributes by name.
type Attributes map[string]enumspb.IndexedValueType

// WorkflowAttributes are the search attributes of Everpost's workflows.
func WorkflowAttributes() Attributes {
	all := Attributes{}
	for _, name := range workflows.KeywordAttributes() {
		all[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	for _, name := range workflows.KeywordListAttributes() {
		all[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST
	}
	return all
}

func (a Attributes) names() []string { return slices.Sorted(maps.Keys(a)) }

// Services are Temporal's services; a client of the SDK has both.
type Services struct {
	Workflow workflowservice.WorkflowServiceClient
	Operator operatorservice.OperatorServiceClient
}

// Config is the namespace that Ensure sets up.
type Config struct {
	Name       string
	Attributes Attributes

	// Retention is how long closed workflows are kept. At 0 an existing namespace keeps its own, and a new one
	// gets DefaultRetention.
	Retention time.Duration

	// Timeout bounds each step, and Interval is the pause between two tries of a step.
	Timeout, Interval time.Duration

	// Settle is for how long new search attributes must be in use without a failure. A server that has learnt of them may
	// go back to what it read before, until it reads the namespace again.
	Settle time.Duration
}

// Result is what Ensure found and changed.
type Result struct {
	Created      bool
	Retention    time.Duration // in force now
	OldRetention time.Duration // before, if Ensure changed it; else 0
	Added        []string      // search attributes, sorted
}

// Ensure waits for Temporal, creates the namespace and its search attributes if they are missing, sets the retention,
// and waits until workflows can be started and found by every attribute. It changes nothing else, and calling it again
// does no harm. Other errors than those of a server that is starting end it at once.
func Ensure(ctx context.Context, s Services, c Config) (Result, error) {
	e := ensurer{Services: s, config: c}
	if err := e.namespace(ctx); err != nil {
		return e.result, err
	}
	if err := e.attributes(ctx); err != nil {
		return e.result, err
	}
	return e.result, e.awaitUse(ctx)
}

type ensurer struct {
	Services

	config Config
	result Result
}

// await repeats a step until it succeeds. It gives up after an error that a repetition does not fix: one that is
// neither temporary nor in retry.
func (e *ensurer) await(ctx context.Context, step string, retry func(error) bool, try func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	tick := time.NewTicker(e.config.Interval)
	defer tick.Stop()
	for {
		err := try(within)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", step, context.Cause(ctx))
		}
		if !isTemporary(err) && !retry(err) {
			return fmt.Errorf("%s: %w", step, err)
		}
		select {
		case <-tick.C:
		case <-within.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("%s: %w", step, context.Cause(ctx))
			}
			return fmt.Errorf("%s: not within %s: %w", step, e.config.Timeout, err)
		}
	}
}

func never(error) bool { return false }

// isTemporary reports an error of a server that is starting, or out of reach.
func isTemporary(err error) bool {
	return isError[*serviceerror.Unavailable](err) || isError[*serviceerror.ResourceExhausted](err) || isError[*serviceerror.DeadlineExceeded](err)
}

// namespace creates the namespace, or sets its retention.
func (e *ensurer) namespace(ctx context.Context) error {
	var found *workflowservice.DescribeNamespaceResponse
	err := e.await(ctx, "look up namespace "+e.config.Name, never, func(ctx context.Context) (err error) {
		found, err = e.Workflow.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: e.config.Name})
		if isError[*serviceerror.NamespaceNotFound](err) {
			found, err = nil, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if found == nil {
		return e.create(ctx)
	}
	e.result.Retention = found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	if e.config.Retention == 0 || e.config.Retention == e.result.Retention {
		return nil
	}
	err = e.await(ctx, "set the retention of namespace "+e.config.Name, never, func(ctx context.Context) error {
		_, err := e.Workflow.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: e.config.Name,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(e.config.Retention)},
		})
		return err //nolint:wrapcheck // await wraps it
	})
	if err == nil {
		e.result.OldRetention, e.result.Retention = e.result.Retention, e.config.Retention
	}
	return err
}

func (e *ensurer) create(ctx context.Context) error {
	retention := e.config.Retention
	if retention == 0 {
		retention = DefaultRetention
	}
	err := e.await(ctx, "create namespace "+e.config.Name, never, func(ctx context.Context) error {
		_, err := e.Workflow.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: e.config.Name, Description: "Everpost", WorkflowExecutionRetentionPeriod: durationpb.New(retention),
		})
		if isError[*serviceerror.NamespaceAlreadyExists](err) {
			return nil // created by the previous try, whose answer was lost
		}
		return err //nolint:wrapcheck // await wraps it
	})
	if err == nil {
		e.result.Created, e.result.Retention = true, retention
	}
	return err
}

// attributes creates the missing search attributes.
func (e *ensurer) attributes(ctx context.Context) error {
	if len(e.config.Attributes) == 0 {
		return nil
	}
	var has Attributes
	err := e.await(ctx, "list search attributes", isError[*serviceerror.NamespaceNotFound], func(ctx context.Context) (err error) {
		has, err = listAttributes(ctx, e.Services, e.config.Name)
		return err
	})
	if err != nil {
		return err
	}
	missing, err := e.config.Attributes.missing(has)
	if err != nil || len(missing) == 0 {
		return err
	}
	err = e.await(ctx, "create search attributes", isError[*serviceerror.NamespaceNotFound], func(ctx context.Context) error {
		_, err := e.Operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: e.config.Name, SearchAttributes: missing})
		return err //nolint:wrapcheck // await wraps it
	})
	if err == nil {
		e.result.Added = missing.names()
	}
	return err
}

// missing returns the attributes that has lacks. The error names one that has another type.
func (a Attributes) missing(has Attributes) (Attributes, error) {
	missing := Attributes{}
	for _, name := range a.names() {
		switch existing, ok := has[name]; {
		case !ok:
			missing[name] = a[name]
		case existing != a[name]:
			return nil, fmt.Errorf("search attribute %s: the namespace has it as %s, not %s", name, existing, a[name])
		}
	}
	return missing, nil
}

func listAttributes(ctx context.Context, s Services, namespace string) (Attributes, error) {
	list, err := s.Operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	return list.GetCustomAttributes(), err
}

var errSettling = errors.New("new search attributes are not in use for long enough")

// awaitUse returns when workflows can be started and found by every attribute. Parts of the server read a namespace
// only every few seconds.
func (e *ensurer) awaitUse(ctx context.Context) error {
	retry := func(err error) bool {
		return errors.Is(err, errSettling) || isError[*serviceerror.NamespaceNotFound](err) || isError[*serviceerror.InvalidArgument](err)
	}
	var conditions []string
	for _, name := range e.config.Attributes.names() {
		conditions = append(conditions, name+" IS NULL")
	}
	var usable time.Time // since when without a failure
	err := e.await(ctx, "wait for search attributes", retry, func(ctx context.Context) error {
		_, err := e.Workflow.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: e.config.Name, Query: strings.Join(conditions, " AND "),
		})
		switch {
		case err != nil:
			usable = time.Time{}
			return err //nolint:wrapcheck // await wraps it
		case len(e.result.Added) == 0:
			return nil
		case usable.IsZero():
			usable = time.Now()
		}
		if time.Since(usable) < e.config.Settle {
			return errSettling
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.await(ctx, "wait for history", retry, func(ctx context.Context) error {
		_, err := e.Workflow.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: e.config.Name, Execution: &commonpb.WorkflowExecution{WorkflowId: "everpost-is-it-ready"},
		})
		if isError[*serviceerror.NotFound](err) {
			return nil // the history shard has searched
		}
		return err //nolint:wrapcheck // await wraps it
	})
}

// isError reports whether err is an error of Temporal of type T, also as a status of gRPC.
func isError[T error](err error) bool {
	_, is := errors.AsType[T](serviceerror.FromStatus(serviceerror.ToStatus(err)))
	return is
}
