package notifications

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// digestReads is how many of a tenant's newest dead letters a digest reads.
const digestReads = 5000

// SendDigests stores the digests of dead letters that are due, of at most limit owners, and returns how many owners it looked at. Each owner's is
// due once a day; without a dead letter there is none. It finds the owners by notification_settings_digest, and reads of a tenant digestReads
// entries of deliveries_dead_letters at most; the installation's is from 24 hours of its statistics.
func (s *Notifications) SendDigests(ctx context.Context, limit int) (n int, err error) {
	err = s.core.AsWorker().ByIndex().InTx(ctx, "tell of dead letters", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			update notification_settings
			set digest_at = interval '1 day' + case when digest_at > now() - interval '1 day' then digest_at else now() end
			where owner = any(array(select owner from notification_settings where digest_at <= now() order by digest_at limit $1 for update skip locked))
			returning owner`, limit)
		if err != nil {
			return err
		}
		owners, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		n = len(owners)
		for _, owner := range owners {
			if err := s.sendDigest(ctx, tx, owner); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

func (s *Notifications) sendDigest(ctx context.Context, tx pgx.Tx, owner string) error {
	var wanted bool
	err := tx.QueryRow(ctx, `select exists (select from notification_channels where owner = $1 and state = $2 and notices & $3 <> 0)`,
		owner, int16(webhook.ChannelActive), int32(webhook.Notices(0).With(webhook.NoticeDeadLetters))).Scan(&wanted)
	if err != nil || !wanted {
		return err
	}
	now := s.core.Now()
	summary, err := s.deadLetters(ctx, tx, owner, now.Add(-24*time.Hour))
	if err != nil || summary == "" {
		return err
	}
	return s.sendTo(ctx, tx, &webhook.Notification{
		Notice: webhook.NoticeDeadLetters, TenantID: owner, Summary: summary, At: now.Truncate(time.Second).UTC(),
	}, []string{owner})
}

// deadLetters says how many deliveries of an owner were given up since a time; "" if none was. Those of notifications and operational events do
// not count for a tenant.
func (s *Notifications) deadLetters(ctx context.Context, tx pgx.Tx, owner string, since time.Time) (string, error) {
	if owner == "" {
		var n int
		err := tx.QueryRow(ctx, `
			select coalesce(sum(ended_dead_lettered), 0) from (
				select ended_dead_lettered from statistics_minutes where tenant_id = '' and endpoint_id = $1 and at >= $2
				union all
				select ended_dead_lettered from statistics_hours h where tenant_id = '' and endpoint_id = $1 and at >= $2
					and not exists (select from statistics_minutes m where m.tenant_id = '' and m.endpoint_id = $1
						and m.at >= h.at and m.at < h.at + interval '1 hour')) s`, [16]byte{}, since).Scan(&n)
		if err != nil || n == 0 {
			return "", err
		}
		return explain.DeadLettersOfDay(n, 0, false), nil
	}
	var n, endpoints, read int
	err := tx.QueryRow(ctx, `
		select count(*) filter (where recent), count(distinct endpoint_id) filter (where recent), count(*) from (
			select endpoint_id, completed_at >= $2 and not `+postgres.IsOperational("event_type")+` as recent from deliveries
			where tenant_id = $1 and state = `+postgres.DeadLettered+` order by id desc limit $3) d`, owner, since, digestReads).
		Scan(&n, &endpoints, &read)
	if err != nil || n == 0 {
		return "", err
	}
	return explain.DeadLettersOfDay(n, endpoints, read == digestReads), nil
}
