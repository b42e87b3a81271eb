package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	leftPatience = 30 * time.Second       // for what ends after the last write, such as workflows
	leftTick     = 100 * time.Millisecond // Temporal's lists follow a moment later
	listed       = 1000                   // workflows that are looked at one by one, at most
)

// Kinds of workflows, as queries of Temporal's lists.
const (
	ofDeliveries  = " AND WorkflowType IN ('DeliveryWorkflow', 'FanoutWorkflow', 'ReplayWorkflow')"
	ofDeadLetters = " AND WorkflowType = 'DeadLetterWorkflow'"
)

// leftBehind is what is left of all tenants although all is at rest: claims, replays, and workflows other than those of dead letters.
func (r run) leftBehind(ctx context.Context, conn *pgx.Conn) []string {
	patient, cancel := context.WithTimeout(ctx, leftPatience)
	defer cancel()
	for {
		left := leftNow(patient, conn, r.in.countWorkflows)
		if len(left) == 0 {
			return nil
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
		left = append(left, fmt.Sprintf("%d workflows of deliveries that have ended; %d workflows of %d dead letters", working, waiting, dead))
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

// countDeadLetters counts the workflows that run, of the dead letters in the database.
func (in *installation) countDeadLetters(ctx context.Context, conn *pgx.Conn) (running int, err error) {
	rows, _ := conn.Query(ctx, "select event_id, endpoint_id, run from deliveries where state = 4")
	var (
		event, endpoint [16]byte
		run             int
	)
	_, err = pgx.ForEachRow(rows, []any{&event, &endpoint, &run}, func() error {
		workflow := webhook.Ref{EventID: event, EndpointID: endpoint}.WorkflowID(run)
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
