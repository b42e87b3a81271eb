package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// maxSignalDoublings bounds by how often a pause between two signals of a command doubles: from 8 s
// to 34 min. Each is an event of the workflow's history.
const maxSignalDoublings = 8

// TakeCommands takes up to limit commands to signal again, because no step has answered them for
// RelayAfter. It returns them again after RelayAfter, and each time after twice as long.
func (s *Outbox) TakeCommands(ctx context.Context, limit int) ([]webhook.CommandedDelivery, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "read commands", scanCommanded, `
		with due as materialized (
			select id from deliveries where command <> `+postgres.NoCommand+` and commanded_at <= now() - $2::bigint * interval '1 millisecond'
			order by commanded_at limit $1 for update skip locked)
		update deliveries d set command_signals = command_signals + 1,
			commanded_at = now() + $2::bigint * ((1 << least(command_signals + 1, $3)) - 1) * interval '1 millisecond'
		where `+isOneOf("due")+`
		returning d.command, d.command_id, d.command_reason, d.command_at, d.command_signals,
			exists (select from outbox o where o.delivery_id = d.id), `+Columns, limit, RelayAfter.Milliseconds(), maxSignalDoublings)
}

func scanCommanded(row pgx.CollectableRow) (webhook.CommandedDelivery, error) {
	var (
		c       webhook.CommandedDelivery
		command int16
		at      *time.Time
	)
	scan := Scanner{}
	err := row.Scan(append([]any{&command, &c.Command.ID, &c.Command.Reason, &at, &c.Signalled, &c.Waiting}, scan.targets()...)...)
	c.Command.Command, c.Command.At = webhook.Command(command), postgres.OrZero(at) //nolint:gosec // written by us from a Command
	c.Delivery = scan.delivery()
	return c, err
}

// isOneOf selects the deliveries d whose ids are in a table with a column id: by a list, because a join may read whole tables, and between
// bounds, so that only the partitions of their days are read.
func isOneOf(table string) string {
	return `d.id = any(array(select id from ` + table + `))
		and d.id >= (select id from ` + table + ` order by id limit 1) and d.id <= (select id from ` + table + ` order by id desc limit 1)`
}
