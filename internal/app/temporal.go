package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/everpost/everpost/internal/namespace"
	"github.com/everpost/everpost/internal/telemetry"
	"github.com/everpost/everpost/internal/temporalconn"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
)

const (
	// setupInterval is the pause between two tries while Temporal starts.
	setupInterval = 500 * time.Millisecond
	// setupSettle is for how long new search attributes must be in use: longer than the 2 s after which Temporal reads
	// namespaces again.
	setupSettle = 3 * time.Second
)

// NamespaceSetup is what SetupNamespace found and changed.
type NamespaceSetup = namespace.Result

// NamespaceName is the namespace of the options.
func NamespaceName(o client.Options) string {
	if o.Namespace == "" {
		return client.DefaultNamespace
	}
	return o.Namespace
}

// SetupNamespace creates Everpost's namespace in Temporal and its search attributes, as far as they are missing. At
// retention 0 an existing namespace keeps its retention. It waits up to wait for Temporal.
func SetupNamespace(ctx context.Context, o client.Options, retention, wait time.Duration, logger *slog.Logger) (NamespaceSetup, error) {
	c, err := dialLazily(o, logger)
	if err != nil {
		return NamespaceSetup{}, err
	}
	defer c.Close()
	result, err := namespace.Ensure(ctx, services(c), namespace.Config{
		Name: NamespaceName(o), Attributes: namespace.WorkflowAttributes(), Retention: retention, Timeout: wait, Interval: setupInterval,
		Settle: min(setupSettle, wait/2),
	})
	return result, explainTemporal(ctx, o, err)
}

// MakeCurrent makes a release the current version of the workers in Temporal: workflows begin and go on with its workers. It waits
// up to wait for one that polls. The result is the version from before, "" for workers without one.
func MakeCurrent(ctx context.Context, o client.Options, version string, wait time.Duration, logger *slog.Logger) (before string, err error) {
	c, err := dialLazily(o, logger)
	if err != nil {
		return "", err
	}
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.Tick(setupInterval)
	var last error
	for {
		before, err = makeCurrent(within, c, version)
		if err == nil {
			return before, nil
		}
		if last == nil || !isAway(err) {
			last = err // what Temporal said, rather than that it did not answer in time
		}
		if !isPassing(err) {
			return "", fmt.Errorf("make %s the current version: %w", version, explainTemporal(ctx, o, err))
		}
		select {
		case <-tick:
		case <-within.Done():
			return "", fmt.Errorf("make %s the current version: no worker of it has polled within %s: %w", version, wait, explainTemporal(ctx, o, last))
		}
	}
}

// makeCurrent fails with NotFound or FailedPrecondition until a worker of the version has polled the task queue.
func makeCurrent(ctx context.Context, c client.Client, version string) (before string, err error) {
	if before, err = currentVersion(ctx, c); err != nil {
		return "", err
	}
	_, err = c.WorkerDeploymentClient().GetHandle(worker.Deployment).
		SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: version})
	return before, err //nolint:wrapcheck // MakeCurrent wraps it
}

// currentVersion is the version of the workers that workflows begin and go on with; "" is that of workers without one.
func currentVersion(ctx context.Context, c client.Client) (string, error) {
	found, err := c.WorkerDeploymentClient().GetHandle(worker.Deployment).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the current version: %w", err)
	}
	if current := found.Info.RoutingConfig.CurrentVersion; current != nil {
		return current.BuildID, nil
	}
	return "", nil
}

// isPassing reports an error that goes away when a worker polls, or Temporal answers.
func isPassing(err error) bool {
	_, missing := errors.AsType[*serviceerror.NotFound](err)
	_, early := errors.AsType[*serviceerror.FailedPrecondition](err)
	return missing || early || isAway(err)
}

func dialLazily(o client.Options, logger *slog.Logger) (client.Client, error) {
	o.Logger = log.NewStructuredLogger(TemporalLogger(logger))
	c, err := client.NewLazyClient(o)
	if err != nil {
		return nil, fmt.Errorf("open the Temporal client: %w", err)
	}
	return c, nil
}

func services(c client.Client) namespace.Services {
	return namespace.Services{Workflow: c.WorkflowService(), Operator: c.OperatorService()}
}

// explainTemporal adds to an error of Temporal what to do about it.
func explainTemporal(ctx context.Context, o client.Options, err error) error {
	const cloud = "a namespace of Temporal Cloud is set up there: see docs/operations.md#temporal-as-a-service"
	_, denied := errors.AsType[*serviceerror.PermissionDenied](err)
	denied = denied || status.Code(err) == codes.Unauthenticated
	_, lacking := errors.AsType[*serviceerror.Unimplemented](err)
	switch {
	case err == nil:
		return nil
	case denied:
		return &webhook.Error{
			Code: webhook.CodeForbidden, Err: err,
			Message: "Temporal at " + o.HostPort + " does not permit this: check TEMPORAL_API_KEY or TEMPORAL_API_KEY_FILE, or the certificate; " + cloud,
		}
	case lacking:
		return &webhook.Error{Code: webhook.CodeForbidden, Message: "Temporal at " + o.HostPort + " does not offer this; " + cloud, Err: err}
	case isAway(err):
		message := "no answer from Temporal at " + o.HostPort + ": "
		if why := temporalconn.Check(ctx, o); why != nil {
			return &webhook.Error{Code: webhook.CodeUnavailable, Message: message + oneLine(why), Err: err}
		}
		return &webhook.Error{Code: webhook.CodeUnavailable, Message: message + "check TEMPORAL_ADDRESS and TEMPORAL_TLS", Err: err}
	}
	return err
}

// isAway reports an error of a server that does not answer.
func isAway(err error) bool {
	_, away := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return away || late || errors.Is(err, context.DeadlineExceeded)
}

// TemporalLogger is a logger for Temporal's own messages, of its SDK, its server or its Web UI: a line of each kind a minute, with a count, so
// that ours stay readable while the machine starves.
func TemporalLogger(logger *slog.Logger) *slog.Logger { return telemetry.Limit(logger) }
