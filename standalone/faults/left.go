package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/workflows"
)

const (
	leftPatience = 30 * time.Second       // for what ends after the last write, such as workflows
	leftTick     = 100 * time.Millisecond // Temporal's lists follow a moment later
	listed       = 1000                   // workflows that are looked at one by one, at most
)

// Kinds of workflows, as queries of Temporal's lists.
const (
	ofDeliveries  = " AND WorkflowType IN ('DeliveryWorkflow', 'ReplayWorkflow')"
	ofDeadLetters = " AND WorkflowType = 'DeadLetterWorkflow'"
)

// leftBehind is what is left of all tenants although all is at rest: claims, replays, and workflows other than those of dead letters.
func (r run) leftBehind(ctx context.Context, conn *pgx.Conn) []string {
	patient, cancel := context.WithTimeout(ctx, leftPatience)
	defer cancel()
	for {
		left := leftNow(patient, conn, r.in.countWorkflows)
		if len(left) == 0 {
			return r.in.unkept(ctx, conn)
		}
		if conn.IsClosed() || pause(patient, leftTick) != nil {
			break
		}
	}
	// After its store has failed, Temporal's lists may be late for long: each workflow is asked for.
	return leftNow(ctx, conn, func(ctx context.Context, of string) (int, error) {
		if of == ofDeadLetters {
			return r.in.countDeadLetters(ctx, conn)
		}
		return r.in.countRunning(ctx, of)
	})
}

// leftNow is leftBehind at this moment, with a way to count workflows.
func leftNow(ctx context.Context, conn *pgx.Conn, count func(ctx context.Context, of string) (int, error)) (left []string) {
	var claimed, replaying, dead int
	err := errors.Join(conn.QueryRow(ctx, claims).Scan(&claimed), conn.QueryRow(ctx, replays).Scan(&replaying),
		conn.QueryRow(ctx, deadLetters).Scan(&dead))
	if claimed+replaying > 0 {
		left = append(left, fmt.Sprintf("%d claims, %d replays", claimed, replaying))
	}
	working, busy := count(ctx, ofDeliveries)
	waiting, busyToo := count(ctx, ofDeadLetters)
	if working != 0 || waiting != dead {
		left = append(left, fmt.Sprintf("%d workflows of deliveries that have ended; %d workflows of dead letters instead of %d", working, waiting, dead))
	}
	if err = errors.Join(err, busy, busyToo); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// temporaryFiles are those that the parts have not removed.
func (in *installation) temporaryFiles() (left []string) {
	files, err := os.ReadDir(in.temporary)
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range files {
		left = append(left, "the temporary file "+f.Name())
	}
	return left
}

// countWorkflows counts running workflows by Temporal's list.
func (in *installation) countWorkflows(ctx context.Context, of string) (int, error) {
	answer, err := in.engine.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: temporal.DefaultNamespace, Query: "ExecutionStatus = 'Running'" + of,
	})
	if err != nil {
		return 0, fmt.Errorf("count workflows: %w", err)
	}
	return int(answer.GetCount()), nil
}

// countDeadLetters counts the workflows that run, of those that the database names for dead letters.
func (in *installation) countDeadLetters(ctx context.Context, conn *pgx.Conn) (running int, err error) {
	rows, _ := conn.Query(ctx, "select distinct workflow_id from deliveries where state = 4")
	var workflow string
	_, err = pgx.ForEachRow(rows, []any{&workflow}, func() error {
		found, err := in.engine.DescribeWorkflowExecution(ctx, workflow, "")
		if err != nil {
			return fmt.Errorf("describe workflow %s: %w", workflow, err)
		}
		if found.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			running++
		}
		return nil
	})
	return running, err
}

// unkept are the dead letters that the workflow does not have which the database names.
func (in *installation) unkept(ctx context.Context, conn *pgx.Conn) (left []string) {
	rows, _ := conn.Query(ctx, "select id, workflow_id from deliveries where state = 4")
	var (
		id       [16]byte
		workflow string
		kept     = map[string][]workflows.Status{}
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &workflow}, func() error {
		if _, asked := kept[workflow]; !asked {
			answer, err := in.engine.QueryWorkflow(ctx, workflow, "", workflows.QueryStatus)
			if err != nil {
				return fmt.Errorf("query workflow %s: %w", workflow, err)
			}
			var all []workflows.Status
			if err := answer.Get(&all); err != nil {
				return fmt.Errorf("read the status of workflow %s: %w", workflow, err)
			}
			kept[workflow] = all
		}
		if !slices.ContainsFunc(kept[workflow], func(s workflows.Status) bool { return s.DeliveryID == id }) {
			left = append(left, fmt.Sprintf("the dead letter %s is not in its workflow %s", webhook.DeliveryID(id), workflow))
		}
		return nil
	})
	if err != nil {
		left = append(left, err.Error())
	}
	return left
}

// countRunning counts the workflows in Temporal's list of running ones that do run.
func (in *installation) countRunning(ctx context.Context, of string) (running int, err error) {
	list, err := in.engine.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: temporal.DefaultNamespace, PageSize: listed, Query: "ExecutionStatus = 'Running'" + of,
	})
	if err != nil {
		return 0, fmt.Errorf("list workflows: %w", err)
	}
	for _, w := range list.GetExecutions() {
		found, err := in.engine.DescribeWorkflowExecution(ctx, w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId())
		if err != nil {
			return 0, fmt.Errorf("describe workflow %s: %w", w.GetExecution().GetWorkflowId(), err)
		}
		if found.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			running++
		}
	}
	return running, nil
}
