// Package replays stores replays and releases their sets, batch by batch.
package replays

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// replayColumns is what scanReplay scans, of the table r.
const replayColumns = `r.id, r.tenant_id, r.source, r.endpoint_id, r.event_type, r.reason, r.status, r.since, r.until,
	r.ended_since, r.ended_until, r.include_unmatched,
	r.asked, r.rate, r.ramp, r.state, r.state_reason, r.total, r.released, r.skipped, r.delivered, r.failed,
	r.command, r.command_rate, r.command_id, r.started, r.created_at, r.completed_at`

func scanReplay(row pgx.CollectableRow) (webhook.Replay, error) {
	var (
		r                       webhook.Replay
		id                      [16]byte
		endpoint                pgtype.UUID
		source, state, command  int16
		since, until, completed *time.Time
		endedSince, endedUntil  *time.Time
	)
	err := row.Scan(&id, &r.TenantID, &source, &endpoint, &r.Filter.EventType, &r.Filter.Reason, &r.Filter.Status, &since, &until, &endedSince, &endedUntil,
		&r.Filter.IncludeUnmatched,
		&r.Asked, &r.Rate, &r.Ramp, &state, &r.StateReason, &r.Total, &r.Released, &r.Skipped, &r.Delivered, &r.Failed,
		&command, &r.Command.Rate, &r.Command.ID, &r.Started, &r.CreatedAt, &completed)
	r.ID, r.Source, r.State = id, webhook.ReplaySource(source), webhook.ReplayState(state) //nolint:gosec // written by us
	r.Filter.EndpointID, r.Filter.Since, r.Filter.Until = endpoint.Bytes, postgres.OrZero(since), postgres.OrZero(until)
	r.Filter.EndedSince, r.Filter.EndedUntil = postgres.OrZero(endedSince), postgres.OrZero(endedUntil)
	r.Command.Action = webhook.ReplayAction(command) //nolint:gosec // written by us
	r.CreatedAt, r.CompletedAt = r.CreatedAt.UTC(), postgres.OrZero(completed)
	return r, err
}

// readReplay reads a replay in a transaction.
func readReplay(ctx context.Context, tx pgx.Tx, id webhook.ReplayID) (webhook.Replay, error) {
	rows, err := tx.Query(ctx, `select `+replayColumns+` from replays r where id = $1`, id)
	if err != nil {
		return webhook.Replay{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanReplay)
}

// replayEvents writes the operational event of a replay that has completed.
type replayEvents interface {
	NoteReplay(ctx context.Context, tx pgx.Tx, r *webhook.Replay) error
}

// Replays stores replays, and releases their sets batch by batch.
type Replays struct {
	core *postgres.Core

	events      replayEvents
	quotas      *tenants.Quotas
	retryPolicy retry.Policy // of the installation
	limits      Limits
}

// New returns a Replays.
func New(s *postgres.Core, events replayEvents, quotas *tenants.Quotas, policy retry.Policy, limits Limits) *Replays {
	return &Replays{core: s, events: events, quotas: quotas, retryPolicy: policy, limits: limits.withDefaults()}
}

// CreateReplay stores a replay with an audit entry, and counts its set. The set is fixed: a delivery that
// ends later is not part of it. The caller sets Asked, Ramp, Source and Filter, the store everything
// else. The replay runs, or is queued while as many run as may.
//
// Errors: CodeNotFound, there is no such tenant; CodeInvalid, it has no such endpoint; CodeQuota, webhook.MaxOpenReplays of its
// replays have not ended; CodeRateLimited and CodeUnavailable, too many lists and counts are under way.
func (s *Replays) CreateReplay(ctx context.Context, by webhook.Actor, r webhook.Replay) (webhook.Replay, error) {
	const op = "create a replay"
	as := s.core.OfTenant(r.TenantID)
	release, err := s.core.TakeList(ctx, r.TenantID) // it counts
	if err != nil {
		return r, postgres.Translate(op, err)
	}
	defer release()
	err = as.InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.quotas.AllowReplay(ctx, tx, r.TenantID); err != nil {
			return err
		}
		if err := Insert(ctx, tx, by, &r); err != nil {
			return err
		}
		return s.admit(ctx, tx, &r)
	})
	return r, err
}

// Insert stores a replay within a transaction. It is queued until AdmitReplays lets it run.
func Insert(ctx context.Context, tx pgx.Tx, by webhook.Actor, r *webhook.Replay) error {
	r.ID, r.Rate, r.State = webhook.NewReplayID(), r.Asked, webhook.ReplayQueued
	set, err := fix(ctx, tx, r, "for key share")
	if err != nil {
		return err
	}
	if r.Total, err = countSet(ctx, tx, set); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into replays (id, tenant_id, source, endpoint_id, event_type, reason, status, since, until, created_at,
			asked, rate, ramp, total, cursor, include_unmatched, state, ended_since, ended_until)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, $14, $15, $16, $17, $18)`,
		r.ID, r.TenantID, int16(r.Source), pgtype.UUID{Bytes: r.Filter.EndpointID, Valid: !r.Filter.EndpointID.IsZero()},
		r.Filter.EventType, r.Filter.Reason, r.Filter.Status, postgres.Optional(r.Filter.Since), postgres.Optional(r.Filter.Until), r.CreatedAt,
		r.Asked, r.Ramp, r.Total, set.low, r.Filter.IncludeUnmatched, int16(r.State),
		postgres.Optional(r.Filter.EndedSince), postgres.Optional(r.Filter.EndedUntil))
	if err != nil {
		return err
	}
	detail := map[string]any{"source": r.Source.String()}
	if !r.Filter.EndpointID.IsZero() {
		detail["endpoint_id"] = r.Filter.EndpointID.String()
	}
	if r.Filter.IncludeUnmatched {
		detail["include_unmatched"] = true
	}
	return audit.Write(ctx, tx, by, r.TenantID, "replay.create", r.ID.String(), postgres.JSONBytes(detail))
}

// Replay reads one replay of a tenant; CodeNotFound.
func (s *Replays) Replay(ctx context.Context, tenantID string, id webhook.ReplayID) (webhook.Replay, error) {
	found, err := postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read a replay", scanReplay,
		`select `+replayColumns+` from replays r where id = $1 and tenant_id = $2`, id, tenantID)
	if err != nil {
		return webhook.Replay{}, err
	}
	if len(found) == 0 {
		return webhook.Replay{}, webhook.NotFound("replay")
	}
	return found[0], nil
}

// ListReplays reads a page of a tenant's replays, newest first.
func (s *Replays) ListReplays(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Replay, error) {
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "list replays", scanReplay,
		`select `+replayColumns+` from replays r where tenant_id = $1 and `+postgres.PageCondition+` order by id desc limit $3`, tenantID, p.After, p.Limit)
}

// CommandReplay stores a command for a replay with an audit entry, and returns the replay after that. The
// workflow finds the command with its next step at the latest; a signal makes that sooner. After a pause
// or a cancel no batch is released. A command that changes nothing is not stored: the returned replay has
// no pending command then.
//
// Errors: CodeNotFound; CodeConflict, with the replay, if it has ended, or is being cancelled and the
// command is not a cancel.
func (s *Replays) CommandReplay(ctx context.Context, by webhook.Actor, tenantID string, id webhook.ReplayID, c webhook.ReplayCommand,
) (webhook.Replay, error) {
	var r webhook.Replay
	err := s.core.OfTenant(tenantID).InTx(ctx, "store a command", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select `+replayColumns+` from replays r where id = $1 and tenant_id = $2 for no key update`, id, tenantID)
		if err != nil {
			return err
		}
		r, err = pgx.CollectExactlyOneRow(rows, scanReplay)
		switch {
		case postgres.IsNoRows(err):
			return webhook.NotFound("replay")
		case err != nil:
			return err
		case !r.State.Open():
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the replay is " + r.State.String()}
		case r.Command.Action == webhook.ReplayCancel && c.Action != webhook.ReplayCancel:
			return &webhook.Error{Code: webhook.CodeConflict, Message: "the replay is being cancelled"}
		case !changes(&r, c):
			return nil
		}
		name := "set_rate"
		if c.Action != webhook.ReplayKeep {
			r.Command.Action, name = c.Action, c.Action.String()
		}
		if c.Rate != 0 {
			r.Command.Rate, r.Asked = c.Rate, c.Rate
		}
		r.Command.ID++
		_, err = tx.Exec(ctx, `update replays set command = $2, command_rate = $3, command_id = $4, asked = $5,
			relay_at = now() + $6::bigint * interval '1 millisecond' where id = $1`,
			id, int16(r.Command.Action), r.Command.Rate, r.Command.ID, r.Asked, deliveries.RelayAfter.Milliseconds())
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, "replay."+name, id.String(), nil)
	})
	return r, err
}

// changes reports whether the command changes the replay, or its pending command.
func changes(r *webhook.Replay, c webhook.ReplayCommand) bool {
	if c.Rate != 0 {
		return c.Rate != r.Asked || c.Rate != r.Rate
	}
	switch c.Action {
	case webhook.ReplayPause:
		return r.Command.Action != webhook.ReplayPause && (r.State != webhook.ReplayPaused || r.Command.Action != webhook.ReplayKeep)
	case webhook.ReplayResume:
		return r.Command.Action != webhook.ReplayResume && (r.State == webhook.ReplayPaused || r.Command.Action != webhook.ReplayKeep)
	case webhook.ReplayCancel:
		return r.Command.Action != webhook.ReplayCancel
	case webhook.ReplayKeep:
	}
	return false
}

// TakeReplays takes up to limit replays whose workflow may be missing: it has not started, has not handled
// a command for RelayAfter, or has written nothing for replaySilence although the replay runs. No process
// gets them again before RelayAfter has passed. A queued replay is among them only with a command. It reads what it takes by the index
// replays_relay.
func (s *Replays) TakeReplays(ctx context.Context, limit int) ([]webhook.Replay, error) {
	return postgres.QueryAll(ctx, s.core.AsWorker(), "find replays whose workflow does not answer", scanReplay, `
		update replays r set relay_at = now() + $2::bigint * interval '1 millisecond'
		where id in (select id from replays where relay_at <= now() order by relay_at limit $1 for update skip locked)
		returning `+replayColumns, limit, deliveries.RelayAfter.Milliseconds())
}

// PruneReplays removes replays that ended longer ago than keep, and returns how many.
func (s *Replays) PruneReplays(ctx context.Context, keep time.Duration) (int, error) {
	var gone int64
	err := s.core.AsWorker().WithConn(ctx, "prune replays", func(ctx context.Context, conn postgres.Querier) error {
		tag, err := conn.Exec(ctx, `delete from replays where completed_at < now() - $1::bigint * interval '1 millisecond'`, keep.Milliseconds())
		gone = tag.RowsAffected()
		return err
	})
	return int(gone), err
}

// Rate is what the replays of an installation do together.
type Rate struct {
	Running   int64
	PerMinute int64 // deliveries that they release
	Queued    int64 // replays that wait until fewer run; MaxQueuedCounted+1 means more than that
}

// MaxQueuedCounted bounds the count of queued replays.
const MaxQueuedCounted = 10_000

// ReplayRate returns how many replays are running and queued, by the index replays_open.
func (s *Replays) ReplayRate(ctx context.Context) (r Rate, err error) {
	err = s.core.AsWorker().ByIndex().WithConn(ctx, "read the rate of replays", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `
			select count(*), coalesce(sum(rate), 0),
				(select count(*) from (select from replays where state = `+postgres.ReplayQueued+` limit $1) q)
			from replays where state = `+postgres.ReplayRunning, MaxQueuedCounted+1).Scan(&r.Running, &r.PerMinute, &r.Queued)
	})
	return r, err
}
