package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	sdk "go.temporal.io/sdk/worker"

	"github.com/everpost/everpost/activities"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
	"github.com/everpost/everpost/workflows"
)

// leftovers is what is left of a tenant: numbers of rows and workflows, in batches. Each pause brings more, as late
// records do.
type leftovers struct {
	rows, workflows []int64
	late            [][2][]int64
	fail            int // so many calls fail
	completed       []string
	order           []string
}

func (l *leftovers) take(what string, from *[]int64) (n int64, err error) {
	if l.fail > 0 {
		l.fail--
		return 0, errors.New("not available")
	}
	if len(*from) == 0 {
		return 0, nil
	}
	n, *from = (*from)[0], (*from)[1:]
	l.order = append(l.order, what)
	return n, nil
}

func (l *leftovers) EraseTenant(_ context.Context, tenant string) (int64, error) {
	if tenant != "acme" {
		return 0, errors.New("another tenant")
	}
	return l.take("rows", &l.rows)
}

func (l *leftovers) CheckDeletion(_ context.Context, tenant string) error {
	if tenant != "acme" {
		return webhook.NotFound("tenant")
	}
	return nil
}

func (l *leftovers) DeleteWorkflows(context.Context, string) (int64, error) {
	return l.take("workflows", &l.workflows)
}

func (l *leftovers) CompleteDeletion(_ context.Context, tenant string) error {
	l.completed = append(l.completed, tenant)
	return nil
}

// erase runs the workflow, and returns how long it took.
func (l *leftovers) erase(t *testing.T) time.Duration {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(sdk.Options{DeadlockDetectionTimeout: time.Minute})
	runs := activities.New(activities.Config{Tenants: l, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { runs.Attempts.Stop(t.Context()) })
	worker.Register(env, runs)
	begun := env.Now()
	env.SetOnTimerFiredListener(func(string) {
		if len(l.late) > 0 {
			l.rows, l.workflows, l.late = l.late[0][0], l.late[0][1], l.late[1:]
		}
	})
	env.ExecuteWorkflow(workflows.TenantDeletionWorkflow, workflows.TenantDeletionInput{TenantID: "acme"})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []string{"acme"}, l.completed)
	return env.Now().Sub(begun)
}

// A deletion is complete when nothing was found after a pause, and not before.
func TestTenantDeletion(t *testing.T) {
	t.Parallel()
	nothing := &leftovers{}
	once := nothing.erase(t)
	require.Equal(t, 40*time.Second, once.Round(time.Second))

	l := &leftovers{rows: []int64{1000, 7}, workflows: []int64{100, 3}, late: [][2][]int64{{{1}, nil}, {nil, {2}}}, fail: 3}
	took := l.erase(t)
	require.Equal(t, []string{"rows", "rows", "workflows", "workflows", "rows", "workflows"}, l.order, "rows first")
	require.GreaterOrEqual(t, took, 3*once)
}
