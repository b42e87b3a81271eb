package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// StepOf is the step after a start: run 1, seq as given.
func StepOf(start webhook.Start, seq int, state webhook.State) webhook.Step {
	return webhook.Step{
		Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, Seq: seq, State: state, GiveUpAt: start.GiveUpAt}, WorkflowID: start.WorkflowID(),
	}
}

// AttemptOf is an attempt of a run, with its status.
func AttemptOf(number, run, status int) *webhook.Attempt {
	return &webhook.Attempt{
		Number: number, Run: run, StartedAt: time.Now().UTC().Truncate(time.Microsecond), Latency: 41 * time.Millisecond,
		Times:     webhook.Times{Names: 7 * time.Microsecond, TLS: time.Millisecond, Waiting: 30 * time.Second},
		WaitedFor: webhook.ReasonNoOwner, Late: 1500 * time.Millisecond,
		Outcome: retry.Outcome{Decision: retry.Retry, Reason: retry.HTTPReason(status), Status: status, RetryAfter: time.Second},
		Delay:   time.Second, DelaySource: "retry_after", Nominal: 10 * time.Second,
		RequestHeaders: map[string]string{"webhook-id": "evt_1"}, ResponseHeaders: map[string][]string{"X-Odd": {"a\x00b"}},
		ResponseBody: []byte("busy\x00\xff"), Truncated: true,
	}
}

// ClaimOf is a claim of a process.
func ClaimOf(start webhook.Start, seq int, owner string, span time.Duration) webhook.Claim {
	return webhook.Claim{
		Ref: start.Ref, Progress: webhook.Progress{Run: start.Run, Seq: seq, GiveUpAt: start.GiveUpAt}, WorkflowID: start.WorkflowID(),
		Claimant: owner, For: span,
	}
}

// NoWorkflow is the workflow of a delivery that none carries.
const NoWorkflow = ""

// StartIDs are the ids of starts.
func StartIDs(starts []webhook.Start) []webhook.DeliveryID {
	var ids []webhook.DeliveryID
	for _, s := range starts {
		ids = append(ids, s.DeliveryID)
	}
	return ids
}

// CommandOne stores a command.
func (b *Bundle) CommandOne(t *testing.T, id webhook.DeliveryID, c webhook.Command) (webhook.Delivery, webhook.PendingCommand, error) {
	t.Helper()
	return b.Command(t.Context(), TestActor(), "acme", id, webhook.PendingCommand{Command: c, Reason: "because"})
}

// Hold records that a delivery is held, by a workflow or by nobody.
func (b *Bundle) Hold(t *testing.T, start webhook.Start, workflow, reason string) webhook.Start {
	t.Helper()
	step := StepOf(start, 1, webhook.StateHeld)
	step.WorkflowID, step.Reason = workflow, reason
	status, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	require.Equal(t, webhook.StateHeld, status.State)
	require.Equal(t, workflow, status.WorkflowID)
	return start
}

// Released are up to n of the subscriber's held deliveries that a turn of its release releases now, from the oldest on. None if its release is
// not due.
func (b *Bundle) Released(t *testing.T, n int) []webhook.Start {
	t.Helper()
	return b.TurnOf(t, webhook.ReleaseTurn{EndpointID: b.Subscriber.ID, Limit: n})
}

// TurnOf makes a turn of a release, whenever that is to come.
func (b *Bundle) TurnOf(t *testing.T, turn webhook.ReleaseTurn) []webhook.Start {
	t.Helper()
	return TurnOf(t, b.DB, turn)
}

// TurnOf makes a turn of a release, whenever that is to come.
func TurnOf(t require.TestingT, db *stores.DB, turn webhook.ReleaseTurn) []webhook.Start {
	ctx := context.Background()
	_, err := db.Pool().Exec(ctx, `
		update releases set next_at = now(), set_next_at = least(set_next_at, now()) where endpoint_id = $1 and next_at is not null`, turn.EndpointID)
	require.NoError(t, err)
	starts, err := db.Releases.TakeTurn(ctx, turn)
	require.NoError(t, err)
	return starts
}

// ReleaseNow releases up to ten held deliveries of an endpoint.
func ReleaseNow(t require.TestingT, db *stores.DB, endpoint webhook.EndpointID) []webhook.Start {
	return TurnOf(t, db, webhook.ReleaseTurn{EndpointID: endpoint, Limit: 10})
}

// Releasable are the ids of Released, up to ten.
func (b *Bundle) Releasable(t *testing.T) []webhook.DeliveryID {
	t.Helper()
	return StartIDs(b.Released(t, 10))
}

// WaitForALock waits until a statement waits for a lock.
func (b *Bundle) WaitForALock(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		rows, err := b.Pool().Query(t.Context(), `
			select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%deliveries as d%'`)
		require.NoError(t, err)
		n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		require.NoError(t, err)
		return n > 0
	}, 20*time.Second, 5*time.Millisecond)
}

// EndIn records the delivery as ended in a state, after one attempt.
func (b *Bundle) EndIn(t *testing.T, start webhook.Start, state webhook.State) webhook.Start {
	t.Helper()
	step := StepOf(start, 1, state)
	step.Attempts, step.RunAttempts, step.Attempt, step.Known = 1, 1, AttemptOf(1, 1, 400), true // as one that has been sent
	step.Attempt.Latency = 0                                                                     // it ends now
	if state == webhook.StateDeadLettered {
		step.Reason = "http_400"
	}
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	return start
}

// DeadLetters stores so many dead letters.
func (b *Bundle) DeadLetters(t *testing.T, n int) (ids []webhook.DeliveryID) {
	t.Helper()
	for range n {
		ids = append(ids, b.EndIn(t, b.AcceptOne(t), webhook.StateDeadLettered).DeliveryID)
	}
	slices.SortFunc(ids, func(a, b webhook.DeliveryID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// FinishMany accepts and finishes more deliveries than are deleted at a time, each with an
// attempt and an external id; that in the middle becomes a dead letter.
func (b *Bundle) FinishMany(t *testing.T, dead webhook.State) (middle webhook.Start) {
	t.Helper()
	const many = postgres.DeleteBatch + webhook.MaxBatchEvents
	var recording errgroup.Group
	recording.SetLimit(16)
	for n := range many / webhook.MaxBatchEvents {
		in := webhook.NewBatch{TenantID: "acme"}
		for i := range webhook.MaxBatchEvents {
			e := NewEvent("order.paid")
			e.ExternalID = fmt.Sprintf("order-%d-%d", n, i)
			in.Events = append(in.Events, e)
		}
		all, err := b.AcceptBatch(t.Context(), in)
		require.NoError(t, err)
		for i, one := range all {
			step := StepOf(one.Deliveries[0], 1, webhook.StateDelivered)
			if n == many/webhook.MaxBatchEvents/2 && i == 0 {
				middle, step.State = one.Deliveries[0], dead
			}
			step.Attempt = AttemptOf(1, 1, 200)
			recording.Go(func() error {
				_, err := b.RecordStep(t.Context(), step)
				return err
			})
		}
	}
	require.NoError(t, recording.Wait())
	require.Equal(t, many, b.Count(t, "deliveries"))
	return middle
}

// Waiting stores a delivery that waits, as its state, reason and time say.
func (b *Bundle) Waiting(t *testing.T, state webhook.State, reason string, due time.Time) webhook.Start {
	t.Helper()
	start := b.AcceptOne(t)
	step := StepOf(start, 1, state)
	step.Reason, step.DueAt = reason, due
	_, err := b.RecordStep(t.Context(), step)
	require.NoError(t, err)
	return start
}
