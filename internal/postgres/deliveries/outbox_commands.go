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

const (
	// commandTurns is of how many tenants TakeCommands takes commands at a time, and maxCommandTurns how often, until it has enough.
	commandTurns, maxCommandTurns = 32, 8
)

// TakeCommands takes up to limit commands to signal again, because no step has answered them for
// RelayAfter. It returns them again after RelayAfter, and each time after twice as long.
//
// The tenants take turns, and of each the oldest commands come first; of more than 256 tenants with commands, each call takes those of the next 256
// at most. It reads the index deliveries_commanded_by_tenant: while there is no command, a block or two of each partition, and otherwise that twice for
// each of these tenants, and what it takes.
func (s *Outbox) TakeCommands(ctx context.Context, limit int) (all []webhook.CommandedDelivery, err error) {
	for turn := 0; turn == 0 || turn < maxCommandTurns && len(all)+commandTurns <= limit; turn++ { // with room for one of each tenant
		tenants, last, err := s.nextCommanding(ctx)
		if err != nil {
			return all, err
		}
		some, err := s.takeCommandsOf(ctx, tenants, limit-len(all))
		all = append(all, some...)
		if err != nil || last {
			return all, err
		}
	}
	return all, nil
}

func (s *Outbox) takeCommandsOf(ctx context.Context, tenants []string, limit int) ([]webhook.CommandedDelivery, error) {
	if len(tenants) == 0 {
		return nil, nil
	}
	return postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "take commands", scanCommanded, `
		with next as materialized (
			select c.id, c.commanded_at, row_number() over (partition by t.id order by c.commanded_at) as turn
			from unnest($4::text[]) t (id) cross join lateral (
				select d.id, d.commanded_at from deliveries d where d.tenant_id = t.id and `+isDueCommand+` order by d.commanded_at limit $1) c
			order by turn, commanded_at limit $1),
		due as materialized (select d.id from deliveries d where `+isOneOf("next")+` and `+isDueCommand+` for update skip locked)
		update deliveries d set command_signals = command_signals + 1,
			commanded_at = now() + $2::bigint * ((1 << least(command_signals + 1, $3)) - 1) * interval '1 millisecond'
		where `+isOneOf("due")+`
		returning d.command, d.command_id, d.command_reason, d.command_at, d.command_signals,
			exists (select from outbox o where o.delivery_id = d.id), `+Columns, limit, RelayAfter.Milliseconds(), maxSignalDoublings, tenants)
}

// isDueCommand selects deliveries d with a command that is due.
const isDueCommand = `d.command <> ` + postgres.NoCommand + ` and d.commanded_at <= now() - $2::bigint * interval '1 millisecond'`

// nextCommanding returns the next tenants with commands, due or not, after those of the call before, and whether they are the last.
func (s *Outbox) nextCommanding(ctx context.Context) (tenants []string, last bool, err error) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	const next = `select d.tenant_id from deliveries d where d.command <> ` + postgres.NoCommand + ` and d.tenant_id > `
	tenants, err = postgres.QueryAll(ctx, s.core.AsWorker().ByIndex(), "find tenants with commands", pgx.RowTo[string], `
		with recursive tenant as (
			(`+next+`$1 order by d.tenant_id limit 1)
			union all
			select (`+next+`t.id order by d.tenant_id limit 1) from tenant t (id) where t.id is not null)
		select id from tenant t (id) where id is not null limit $2`, after, commandTurns)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after = ""; len(tenants) == commandTurns {
		s.after = tenants[len(tenants)-1]
	}
	return tenants, s.after == "", nil
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
