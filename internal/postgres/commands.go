package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

// Command stores what a person asks of a delivery, with the audit entry, and
// returns the delivery as it stands then. The workflow that owns the delivery
// finds the command with its next step at the latest; a signal makes it sooner.
// A replay opens the next run here and now, with an outbox row, so that it is
// carried to the engine as surely as a new event is.
//
// Errors: CodeNotFound; CodeConflict with the State that forbids the command.
// Cancelling twice is no error.
func (s *Store) Command(ctx context.Context, by webhook.Actor, tenantID string, id webhook.DeliveryID, c webhook.PendingCommand,
) (webhook.Delivery, webhook.PendingCommand, error) {
	var d webhook.Delivery
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var err error
		if d, err = lockDelivery(ctx, tx, tenantID, id); err != nil {
			return err
		}
		if c.Command == webhook.CommandCancel && d.State == webhook.StateCancelled {
			c = webhook.PendingCommand{} // repeated after it was carried out: nobody has to be told
			return nil
		}
		if !c.Command.TakenIn(d.State, !d.DueAt.IsZero()) {
			return &webhook.Error{
				Code: webhook.CodeConflict, State: d.State, Message: "a delivery that is " + d.State.String() + " takes no " + c.Command.String(),
			}
		}
		if c.Command == webhook.CommandReplay {
			if err := s.openRun(ctx, tx, &d); err != nil {
				return err
			}
		} else if c.ID, err = storeCommand(ctx, tx, id, c); err != nil {
			return err
		}
		detail, err := json.Marshal(map[string]string{"reason": c.Reason})
		if err != nil {
			return err
		}
		return audit(ctx, tx, by, tenantID, "delivery."+c.Command.String(), id.String(), detail)
	})
	if err != nil {
		return webhook.Delivery{}, webhook.PendingCommand{}, translate("store a command", err)
	}
	return d, c, nil
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
	rows, err := tx.Query(ctx, `select `+deliveryColumns+` from deliveries d where id = $1 and tenant_id = $2 for update`, id, tenantID)
	if err != nil {
		return webhook.Delivery{}, err
	}
	d, err := pgx.CollectExactlyOneRow(rows, scanDelivery)
	if isNoRows(err) {
		return webhook.Delivery{}, webhook.NotFound("delivery")
	}
	return d, err
}

func storeCommand(ctx context.Context, tx pgx.Tx, id webhook.DeliveryID, c webhook.PendingCommand) (int64, error) {
	var commandID int64
	err := tx.QueryRow(ctx, `
		update deliveries set command = $2, command_id = command_id + 1, command_reason = $3, command_at = $4, commanded_at = now()
		where id = $1 returning command_id`, id, int16(c.Command), c.Reason, optional(c.At)).Scan(&commandID)
	return commandID, err
}

// openRun begins a delivery again: a fresh budget, a fresh give-up time, the
// attempts counted on.
func (s *Store) openRun(ctx context.Context, tx pgx.Tx, d *webhook.Delivery) error {
	target, err := s.endpointCache.Target(ctx, d.EndpointID)
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return &webhook.Error{Code: webhook.CodeConflict, State: d.State, Message: "the delivery's endpoint was deleted"}
	}
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	d.Progress = webhook.Progress{
		Run: d.Run + 1, State: webhook.StatePending, Attempts: d.Attempts, GiveUpAt: now.Add(target.RetryPolicy.GiveUpAfter),
	}
	d.CompletedAt, d.LastError = time.Time{}, ""
	_, err = tx.Exec(ctx, `
		update deliveries set run = $2, seq = 0, state = $3, reason = '', run_attempts = 0, ambiguous = 0, delay_ns = 0, due_at = null,
			give_up_at = $4, completed_at = null, last_error = '', owner = null, owner_until = null, command = 0
		where id = $1`, d.DeliveryID, d.Run, int16(d.State), d.GiveUpAt)
	if err != nil {
		return err
	}
	var ob outboxColumns
	ob.add(webhook.Start{Ref: d.Ref, Run: d.Run, CreatedAt: now, GiveUpAt: d.GiveUpAt}, now.Add(relayAfter))
	batch := &pgx.Batch{}
	ob.queue(batch)
	return tx.SendBatch(ctx, batch).Close()
}

// Reopen opens the next run of a dead letter for its own workflow, which a person
// asked to replay by hand, without the API. Where the run was opened already, or
// the delivery is no dead letter any more, nothing changes. Either way it returns
// the standing.
func (s *Store) Reopen(ctx context.Context, ref webhook.Ref, reason string) (webhook.Standing, error) {
	_, _, err := s.Command(ctx, webhook.Actor{Name: "workflow"}, ref.TenantID, ref.DeliveryID,
		webhook.PendingCommand{Command: webhook.CommandReplay, Reason: reason})
	if err != nil && webhook.CodeOf(err) != webhook.CodeConflict {
		return webhook.Standing{}, err
	}
	return s.Standing(ctx, ref.DeliveryID)
}

// Standing is what the record says of a delivery; CodeNotFound before the first record.
func (s *Store) Standing(ctx context.Context, id webhook.DeliveryID) (webhook.Standing, error) {
	rows, err := s.pool.Query(ctx, `select `+standingColumns+` from deliveries d where id = $1`, id)
	if err != nil {
		return webhook.Standing{}, translate("read a standing", err)
	}
	found := map[webhook.DeliveryID]webhook.Standing{}
	if err := readStandings(rows, found); err != nil {
		return webhook.Standing{}, translate("read a standing", err)
	}
	st, ok := found[id]
	if !ok {
		return webhook.Standing{}, webhook.NotFound("delivery")
	}
	return st, nil
}

// Unanswered takes up to limit commands that no step has answered for a while, to
// be signalled again. They are not handed out again for the same while.
func (s *Store) Unanswered(ctx context.Context, limit int) ([]webhook.Commanded, error) {
	rows, err := s.pool.Query(ctx, `
		update deliveries d set commanded_at = now()
		where id in (
			select id from deliveries where command <> 0 and commanded_at <= now() - $2::bigint * interval '1 millisecond'
			order by commanded_at limit $1 for update skip locked)
		returning d.command, d.command_id, d.command_reason, d.command_at, `+deliveryColumns, limit, relayAfter.Milliseconds())
	if err != nil {
		return nil, translate("read commands", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.Commanded, error) {
		var (
			c       webhook.Commanded
			command int16
			at      *time.Time
		)
		scan := deliveryScan{}
		err := row.Scan(append([]any{&command, &c.Command.ID, &c.Command.Reason, &at}, scan.targets()...)...)
		c.Command.Command, c.Command.At = webhook.Command(command), orZero(at) //nolint:gosec // written by us from a Command
		c.Delivery = scan.delivery()
		return c, err
	})
	if err != nil {
		return nil, translate("read commands", err)
	}
	return found, nil
}

// cancelOpenDeliveries asks every open delivery of an endpoint that is being
// deleted to be cancelled. Those without a record find the endpoint gone with
// their first attempt.
func cancelOpenDeliveries(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID) error {
	_, err := tx.Exec(ctx, `
		update deliveries set command = $3, command_id = command_id + 1, command_reason = $4, commanded_at = now() - interval '1 hour'
		where endpoint_id = $1 and tenant_id = $2 and state < 3`, id, tenantID, int16(webhook.CommandCancel), webhook.ReasonEndpointDeleted)
	return err
}
