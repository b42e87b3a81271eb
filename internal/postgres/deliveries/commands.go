package deliveries

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// Command stores a command for a delivery, with an audit entry, and returns the delivery after that. The
// delivery's workflow finds the command with its next step at the latest; a signal makes that sooner. A
// replay opens the next run at once, with an outbox row, so that it is as certain to start as a new
// event.
//
// Errors: CodeNotFound; CodeConflict with the State that does not allow the command, or if a cancel is
// stored and not handled yet, which no other command may replace. Cancelling twice is no error.
func (s *Deliveries) Command(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID, c webhook.PendingCommand,
) (webhook.Delivery, webhook.PendingCommand, error) {
	return s.commandIf(ctx, by, tenantID, id, c, RelayAfter, func(*webhook.Delivery) bool { return true })
}

// CancelEvent stores a cancel for each open delivery of an event, with one audit entry, and returns these deliveries with the command. One that a
// cancel is pending for already is left as it is. CodeNotFound: the tenant has no such event.
func (s *Deliveries) CancelEvent(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EventID, reason string) (
	cancelled []webhook.CommandedDelivery, err error,
) {
	err = s.commanding(ctx, tenantID, "cancel an event", func(ctx context.Context, tx pgx.Tx) error {
		var known bool
		err := tx.QueryRow(ctx, `select exists (select from events where id = $1 and tenant_id = $2)`, id, tenantID).Scan(&known)
		if err != nil {
			return err
		}
		if !known {
			return webhook.NotFound("event")
		}
		found, err := lockOfEvent(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(found, func(d webhook.Delivery) bool { return !d.State.Open() })
		if cancelled, err = cancelAll(ctx, tx, open, reason, false); err != nil {
			return err
		}
		detail := postgres.JSONBytes(map[string]string{"reason": reason, "cancelled": strconv.Itoa(len(cancelled))})
		return audit.Write(ctx, tx, by, tenantID, audit.EventCancel, id.String(), detail)
	})
	if err != nil {
		return nil, err
	}
	return cancelled, nil
}

// commanding stores commands in a transaction. Whoever called signals them after it.
func (s *Deliveries) commanding(ctx context.Context, tenantID, name string, store func(context.Context, pgx.Tx) error) error {
	if err := s.core.OfTenant(tenantID).InTx(ctx, name, store); err != nil {
		return err
	}
	failpoint.Hit("command-after-commit")
	return nil
}

// cancelAll stores a cancel for open deliveries that this transaction has locked, in one statement, and returns them with it. Without
// replace, those that a cancel is pending for already are left out.
func cancelAll(ctx context.Context, tx pgx.Tx, open []webhook.Delivery, reason string, replace bool) ([]webhook.CommandedDelivery, error) {
	of := make(map[webhook.DeliveryID]webhook.Delivery, len(open))
	for _, d := range open {
		of[d.DeliveryID] = d
	}
	rows, err := tx.Query(ctx, `
		update deliveries set command = $2, command_id = command_id + 1, command_reason = $3, command_at = null, commanded_at = now(), command_signals = 0
		where id = any($1) and ($4 or command <> $2) returning id, command_id`,
		RawIDs(slices.Collect(maps.Keys(of))), int16(webhook.CommandCancel), reason, replace)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.CommandedDelivery, error) {
		var id [16]byte
		c := webhook.PendingCommand{Command: webhook.CommandCancel, Reason: reason}
		err := row.Scan(&id, &c.ID)
		return webhook.CommandedDelivery{Delivery: of[id], Command: c}, err
	})
}

// commandIf is Command with a condition; CodeConflict: the delivery does not meet it. The relay starts what a replay opens after a time.
func (s *Deliveries) commandIf(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID, c webhook.PendingCommand,
	after time.Duration, meets func(*webhook.Delivery) bool,
) (webhook.Delivery, webhook.PendingCommand, error) {
	endpoint, refusal := webhook.Endpoint{}, error(nil)
	if c.Command != webhook.CommandCancel && c.Command != webhook.CommandDiscard {
		if endpoint, refusal = s.endpointOf(ctx, tenantID, id); refusal != nil && webhook.CodeOf(refusal) != webhook.CodeConflict {
			return webhook.Delivery{}, webhook.PendingCommand{}, refusal
		}
	}
	var d webhook.Delivery
	err := s.commanding(ctx, tenantID, "store a command", func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if d, err = lockDelivery(ctx, tx, tenantID, id); err != nil {
			return err
		}
		if c.Command == webhook.CommandCancel && d.State == webhook.StateCancelled {
			c = webhook.PendingCommand{} // cancelled already: there is nothing to signal
			return nil
		}
		if err := validate(&d, c, &endpoint, s.core.Now()); err != nil {
			return err
		}
		if !meets(&d) {
			return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "the delivery has changed"}
		}
		if err := refuseReplay(ctx, tx, c.Command, &d, refusal); err != nil {
			return err
		}
		policy, _ := endpoint.PolicyInForce()
		if err := s.putCommand(ctx, tx, &d, &c, policy.GiveUpAfter, after); err != nil {
			return err
		}
		values := map[string]string{"reason": c.Reason}
		if !c.At.IsZero() {
			values["at"] = c.At.Format(time.RFC3339Nano)
		}
		detail, err := json.Marshal(values)
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, "delivery."+c.Command.String(), id.String(), detail)
	})
	if err != nil {
		return webhook.Delivery{}, webhook.PendingCommand{}, err
	}
	return d, c, nil
}

// refuseReplay refuses to replay a delivery whose endpoint was deleted, or whose payload was removed.
func refuseReplay(ctx context.Context, tx pgx.Tx, c webhook.Command, d *webhook.Delivery, endpoint error) error {
	if c != webhook.CommandReplay {
		return nil
	}
	if endpoint != nil {
		return endpoint
	}
	var removed webhook.PayloadRemoval
	err := tx.QueryRow(ctx, `select payload_removed_at, payload_removed_reason from events where id = $1 and payload_removed_at is not null`,
		d.EventID).Scan(&removed.At, &removed.Reason)
	switch {
	case postgres.IsNoRows(err):
		return nil
	case err != nil:
		return err
	}
	return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: removed.String() + ", so that nothing can be sent"}
}

// validate refuses a command that the delivery's state does not allow.
func validate(d *webhook.Delivery, c webhook.PendingCommand, endpoint *webhook.Endpoint, now time.Time) error {
	refuse := func(why string) error {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: why}
	}
	end := d.ClockRunning(now).GiveUpAt
	switch again := c.Command == webhook.CommandRetry || c.Command == webhook.CommandReschedule; {
	case !c.Command.TakenIn(d.State, !d.DueAt.IsZero()):
		return refuse("the delivery is " + d.State.String())
	case again && d.State == webhook.StateHeld && endpoint.State != webhook.EndpointActive:
		return refuse("the delivery's endpoint is " + endpoint.State.String())
	case c.Command == webhook.CommandReschedule && d.State != webhook.StatePending && c.At.After(end):
		return webhook.Invalid("at", "must not be after the time at which the delivery is given up, "+end.Format(time.RFC3339))
	}
	return nil
}

// endpointOf reads the delivery's endpoint. The caller reads it before its transaction: it needs a
// connection of its own, and many commands would hold all connections. CodeConflict: the endpoint was
// deleted.
func (s *Deliveries) endpointOf(ctx context.Context, tenantID string, id webhook.DeliveryID) (webhook.Endpoint, error) {
	d, err := s.Delivery(ctx, tenantID, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	endpoint, err := s.endpoints.Unsealed(ctx, tenantID, d.EndpointID)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return webhook.Endpoint{}, &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "the delivery's endpoint was deleted"}
	}
	return endpoint, err
}

// lockDelivery reads and locks a delivery. One without a row gets one from its outbox row, with seq 0,
// so that any step is ahead of it.
func lockDelivery(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.DeliveryID) (webhook.Delivery, error) {
	if err := insertWaiting(ctx, tx, tenantID, id); err != nil {
		return webhook.Delivery{}, err
	}
	rows, err := tx.Query(ctx, `select `+Columns+` from deliveries d where id = $1 and tenant_id = $2 for update`, id, tenantID)
	if err != nil {
		return webhook.Delivery{}, err
	}
	d, err := pgx.CollectExactlyOneRow(rows, Scan)
	if postgres.IsNoRows(err) {
		return webhook.Delivery{}, webhook.NotFound("delivery")
	}
	return d, err
}

// insertWaiting inserts the row of a delivery that is only in the outbox. It is repeated once: the partition of the
// row's day may be attached at the same time.
func insertWaiting(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.DeliveryID) error {
	insert := func() error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `
				insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, due_at, give_up_at)
				select delivery_id, event_id, endpoint_id, tenant_id, event_type, created_at, run, 0, 0, not_before, give_up_at
				from outbox where delivery_id = $1 and tenant_id = $2
				on conflict do nothing`, id, tenantID)
			return err
		})
	}
	err := insert()
	if postgres.IsConflict(err) {
		err = insert()
	}
	return err
}

// putCommand stores the command and sets its id. A replay opens the next run instead.
func (s *Deliveries) putCommand(
	ctx context.Context, tx pgx.Tx, d *webhook.Delivery, c *webhook.PendingCommand, giveUpAfter, after time.Duration,
) error {
	if c.Command == webhook.CommandReplay {
		if d.State == webhook.StateDeadLettered {
			c.Earlier = d.WorkflowID
		}
		return openRun(ctx, tx, d, c.Earlier, giveUpAfter, s.core.Now(), after)
	}
	var err error
	if c.ID, err = StoreCommand(ctx, tx, d.DeliveryID, *c); postgres.IsNoRows(err) {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "the delivery is being cancelled"}
	}
	return err
}

// StoreCommand stores a command and returns its id. It returns pgx.ErrNoRows if another command would
// replace a cancel that is not handled yet.
func StoreCommand(ctx context.Context, tx pgx.Tx, id webhook.DeliveryID, c webhook.PendingCommand) (int64, error) {
	var commandID int64
	err := tx.QueryRow(ctx, `
		update deliveries set command = $2, command_id = command_id + 1, command_reason = $3, command_at = $4,
			commanded_at = now(), command_signals = 0
		where id = $1 and (command <> $5 or $2 = $5) returning command_id`,
		id, int16(c.Command), c.Reason, postgres.Optional(c.At), int16(webhook.CommandCancel)).Scan(&commandID)
	return commandID, err
}

// openRun opens the next run of a delivery, with a new budget and a new give-up time, in a workflow of its own. Attempt numbers
// continue. The relay starts it after a time, and ends the earlier workflow, if that keeps a dead letter.
func openRun(
	ctx context.Context, tx pgx.Tx, d *webhook.Delivery, earlier string, giveUpAfter time.Duration, now time.Time, after time.Duration,
) error {
	now = now.UTC().Truncate(time.Microsecond)
	d.Progress = webhook.Progress{
		Run: d.Run + 1, State: webhook.StatePending, Attempts: d.Attempts, GiveUpAt: now.Add(giveUpAfter),
	}
	d.CompletedAt, d.LastError, d.WorkflowID = time.Time{}, "", d.Ref.WorkflowID(d.Run)
	_, err := tx.Exec(ctx, `
		update deliveries set run = $2, seq = 0, state = $3, reason = '', run_attempts = 0, ambiguous = 0, delay_ns = 0, due_at = null,
			give_up_at = $4, held_at = null, held_for_ns = null, held_until = null, completed_at = null,
			last_error = '', owner = null, owner_until = null, command = `+postgres.NoCommand+`, workflow_id = $5
		where id = $1`, d.DeliveryID, d.Run, int16(d.State), d.GiveUpAt, d.WorkflowID)
	if err != nil {
		return err
	}
	start := &webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt, AssignedTo: d.WorkflowID, Earlier: earlier}
	batch := &pgx.Batch{}
	OutboxBatch{{Start: start, After: after}}.Queue(batch)
	return tx.SendBatch(ctx, batch).Close()
}

// Reopen opens the run after the given one, of a dead letter whose workflow was signalled by hand, without
// the API. It changes nothing if a later run was opened already, or if the delivery is not a dead letter any
// more. It returns the status in either case.
func (s *Deliveries) Reopen(ctx context.Context, ref webhook.Ref, run int, reason string) (webhook.DeliveryStatus, error) {
	status, err := s.DeliveryStatus(ctx, ref)
	if err != nil || status.Run != run || status.State != webhook.StateDeadLettered {
		return status, err
	}
	_, _, err = s.commandIf(ctx, audit.Workflow(), ref.TenantID, ref.DeliveryID,
		webhook.PendingCommand{Command: webhook.CommandReplay, Reason: reason}, 0,
		func(d *webhook.Delivery) bool { return d.State == webhook.StateDeadLettered && d.Run == run })
	if err != nil && webhook.CodeOf(err) != webhook.CodeConflict {
		return webhook.DeliveryStatus{}, err
	}
	return s.DeliveryStatus(ctx, ref)
}
