package deliveries

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// Command stores a command for a delivery, with the audit entry, and
// returns the delivery as it is then. The workflow that owns the delivery
// finds the command with its next step at the latest; a signal makes it sooner.
// A replay opens the next run here and now, with an outbox row, so that it is
// carried to the engine as surely as a new event is.
//
// Errors: CodeNotFound; CodeConflict with the State that forbids the command, or
// when a cancel has been stored and is not answered yet: no other command may take
// its place. Cancelling twice is no error.
func (s *Deliveries) Command(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID, c webhook.PendingCommand,
) (webhook.Delivery, webhook.PendingCommand, error) {
	endpoint, refusal := webhook.Endpoint{}, error(nil)
	if c.Command != webhook.CommandCancel && c.Command != webhook.CommandDiscard {
		if endpoint, refusal = s.endpointOf(ctx, tenantID, id); refusal != nil && webhook.CodeOf(refusal) != webhook.CodeConflict {
			return webhook.Delivery{}, webhook.PendingCommand{}, refusal
		}
	}
	var d webhook.Delivery
	err := s.core.OfTenant(tenantID).InTx(ctx, "store a command", func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if d, err = lockDelivery(ctx, tx, tenantID, id); err != nil {
			return err
		}
		if c.Command == webhook.CommandCancel && d.State == webhook.StateCancelled {
			c = webhook.PendingCommand{} // repeated after it was carried out: there is nothing to signal
			return nil
		}
		if err := takes(&d, c, &endpoint); err != nil {
			return err
		}
		if c.Command == webhook.CommandReplay && refusal != nil {
			return refusal
		}
		policy, _ := endpoint.PolicyInForce()
		if err := s.putCommand(ctx, tx, &d, &c, policy.GiveUpAfter); err != nil {
			return err
		}
		said := map[string]string{"reason": c.Reason}
		if !c.At.IsZero() {
			said["at"] = c.At.Format(time.RFC3339Nano)
		}
		detail, err := json.Marshal(said)
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

// takes refuses a command that makes no sense for the delivery as it stands.
func takes(d *webhook.Delivery, c webhook.PendingCommand, endpoint *webhook.Endpoint) error {
	refuse := func(why string) error {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: why}
	}
	switch again := c.Command == webhook.CommandRetry || c.Command == webhook.CommandReschedule; {
	case !c.Command.TakenIn(d.State, !d.DueAt.IsZero()):
		return refuse("the delivery is " + d.State.String())
	case again && d.State == webhook.StateHeld && endpoint.State != webhook.EndpointActive:
		return refuse("the delivery's endpoint is " + endpoint.State.String())
	case c.Command == webhook.CommandReschedule && d.State != webhook.StatePending && c.At.After(d.GiveUpAt):
		return webhook.Invalid("at", "must not be after the delivery's give_up_at, "+d.GiveUpAt.Format(time.RFC3339))
	}
	return nil
}

// endpointOf is the delivery's endpoint. It is read before the transaction, because
// that needs a connection of its own, and many commands would hold all of them.
// CodeConflict: the endpoint was deleted.
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

// lockDelivery reads a delivery for a change. One that has no record yet gets its
// row from the outbox: the row stays behind any step that is written (seq 0).
func lockDelivery(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.DeliveryID) (webhook.Delivery, error) {
	_, err := tx.Exec(ctx, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, due_at, give_up_at)
		select delivery_id, event_id, endpoint_id, tenant_id, event_type, created_at, run, 0, 0, not_before, give_up_at
		from outbox where delivery_id = $1 and tenant_id = $2
		on conflict do nothing`, id, tenantID)
	if err != nil {
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

// putCommand stores the command, and gives it its id. A replay opens the next run.
func (s *Deliveries) putCommand(ctx context.Context, tx pgx.Tx, d *webhook.Delivery, c *webhook.PendingCommand, giveUpAfter time.Duration) error {
	if c.Command == webhook.CommandReplay {
		return openRun(ctx, tx, d, giveUpAfter, s.core.Now())
	}
	var err error
	if c.ID, err = StoreCommand(ctx, tx, d.DeliveryID, *c); postgres.IsNoRows(err) {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "the delivery is being cancelled"}
	}
	return err
}

// StoreCommand returns no row where a cancel waits for its answer and the command is
// another: a later retry would make the cancel be forgotten.
func StoreCommand(ctx context.Context, tx pgx.Tx, id webhook.DeliveryID, c webhook.PendingCommand) (int64, error) {
	var commandID int64
	err := tx.QueryRow(ctx, `
		update deliveries set command = $2, command_id = command_id + 1, command_reason = $3, command_at = $4, commanded_at = now(), command_told = 0
		where id = $1 and (command <> $5 or $2 = $5) returning command_id`,
		id, int16(c.Command), c.Reason, postgres.Optional(c.At), int16(webhook.CommandCancel)).Scan(&commandID)
	return commandID, err
}

// openRun begins a delivery again: a fresh budget, a fresh give-up time, the
// attempts counted on.
func openRun(ctx context.Context, tx pgx.Tx, d *webhook.Delivery, giveUpAfter time.Duration, now time.Time) error {
	now = now.UTC().Truncate(time.Microsecond)
	d.Progress = webhook.Progress{
		Run: d.Run + 1, State: webhook.StatePending, Attempts: d.Attempts, GiveUpAt: now.Add(giveUpAfter),
	}
	d.CompletedAt, d.LastError, d.WorkflowID = time.Time{}, "", d.Ref.WorkflowID()
	_, err := tx.Exec(ctx, `
		update deliveries set run = $2, seq = 0, state = $3, reason = '', run_attempts = 0, ambiguous = 0, delay_ns = 0, due_at = null,
			give_up_at = $4, completed_at = null, last_error = '', owner = null, owner_until = null, command = `+postgres.NoCommand+`, workflow_id = $5
		where id = $1`, d.DeliveryID, d.Run, int16(d.State), d.GiveUpAt, d.WorkflowID)
	if err != nil {
		return err
	}
	var ob OutboxBatch
	ob = append(ob, OutboxRow{Start: &webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt}, After: RelayAfter})
	batch := &pgx.Batch{}
	ob.Queue(batch)
	return tx.SendBatch(ctx, batch).Close()
}

// Reopen opens the next run of a dead letter for its own workflow, which was
// signalled to replay by hand, without the API. Where the run was opened already, or
// the delivery is no dead letter any more, nothing changes. Either way it returns
// the status.
func (s *Deliveries) Reopen(ctx context.Context, ref webhook.Ref, reason string) (webhook.DeliveryStatus, error) {
	_, _, err := s.Command(ctx, webhook.Actor{Name: "workflow"}, ref.TenantID, ref.DeliveryID,
		webhook.PendingCommand{Command: webhook.CommandReplay, Reason: reason})
	if err != nil && webhook.CodeOf(err) != webhook.CodeConflict {
		return webhook.DeliveryStatus{}, err
	}
	return s.DeliveryStatus(ctx, ref.DeliveryID)
}
