package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/processtest"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	aged         = "aged"           // tenant of rows past their retention
	agedBy       = 40               // days; the retention is 30
	ownDay       = agedBy + 2       // the day whose rows have partitions of their own; those of the other are in the DEFAULT partitions
	retainedSoon = 15 * time.Second // for a retention to remove a few rows
)

// killRetention ages copies of what is delivered, kills a process in the retention that it runs at its start, and starts it again. What is past
// its retention has to be gone then.
func killRetention(point string) injection {
	return func(ctx context.Context, s *scene) error {
		p := s.in.parts[len(s.in.parts)-1] // a worker, or a process that is one too
		if err := s.inDatabase(ctx, func(conn *pgx.Conn) error { return s.age(ctx, conn) }); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return err
		}
		if err := os.WriteFile(s.in.failpoint, []byte(point), 0o600); err != nil {
			return fmt.Errorf("arm failpoint %s: %w", point, err)
		}
		if err := p.launch(); err != nil {
			return err
		}
		select {
		case <-p.process.Exited():
		case <-time.After(processtest.StartPatience):
		case <-ctx.Done():
		}
		if _, err := os.Stat(s.in.failpoint); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the retention was not killed: %w", errors.Join(err, ctx.Err(), os.Remove(s.in.failpoint)))
		}
		if err := p.restart(ctx); err != nil {
			return err
		}
		return s.inDatabase(ctx, func(conn *pgx.Conn) error { return s.allRetained(ctx, conn) })
	}
}

// age stores copies of the tenant's deliveries that are delivered, with their events and attempts, under ids of long ago.
func (s *scene) age(ctx context.Context, conn *pgx.Conn) error {
	if err := execute(ctx, conn,
		"create or replace function pg_temp.aged(id uuid, days int) returns uuid language sql as $$ select (lpad(to_hex(('x0000' || "+
			"left(replace(id::text, '-', ''), 12))::bit(64)::bigint - days * 86400000::bigint), 12, '0') || substr(replace(id::text, '-', ''), 13))::uuid $$",
	); err != nil {
		return err
	}
	for some := false; !some; {
		err := conn.QueryRow(ctx, "select exists (select from deliveries where tenant_id = $1 and state = $2)", s.tenant, webhook.StateDelivered).Scan(&some)
		if err = errors.Join(err, pause(ctx, leftTick)); err != nil {
			return fmt.Errorf("wait for a delivery: %w", err)
		}
	}
	const ended = "select id, event_id from deliveries where tenant_id = $1 and state = $4"
	for _, days := range []int{agedBy, ownDay} {
		for _, table := range []struct{ name, columns, from string }{
			{"deliveries", "'id', pg_temp.aged(r.id, $2), 'event_id', pg_temp.aged(r.event_id, $2)", "deliveries r join ended on r.id = ended.id"},
			{"attempts", "'delivery_id', pg_temp.aged(r.delivery_id, $2)", "attempts r join ended on r.delivery_id = ended.id"},
			{"events", "'id', pg_temp.aged(r.id, $2)", "events r join (select distinct event_id from ended) e on r.id = e.event_id"},
		} {
			if days == ownDay {
				day := time.Now().UTC().AddDate(0, 0, -ownDay)
				name := table.name + "_" + day.Format("20060102")
				from := day.Truncate(24 * time.Hour)
				if _, err := conn.Exec(ctx, "select everpost_make_partition($1, $2, $3, $4) where to_regclass($2) is null",
					table.name, name, idsFrom(from), idsFrom(from.AddDate(0, 0, 1))); err != nil {
					return fmt.Errorf("make partition %s: %w", name, err)
				}
			}
			sql := fmt.Sprintf("with ended as (%s) insert into %s select (jsonb_populate_record(r, jsonb_build_object('tenant_id', $3::text, %s))).* from %s",
				ended, table.name, table.columns, table.from)
			if _, err := conn.Exec(ctx, sql, s.tenant, days, aged, webhook.StateDelivered); err != nil {
				return fmt.Errorf("age %s: %w", table.name, err)
			}
		}
	}
	return nil
}

// idsFrom is the smallest id of a time.
func idsFrom(t time.Time) string { return fmt.Sprintf("%012x%020d", t.UnixMilli(), 0) }

// allRetained waits until nothing is left that is past its retention.
func (s *scene) allRetained(ctx context.Context, conn *pgx.Conn) error {
	patient, cancel := context.WithTimeout(ctx, retainedSoon)
	defer cancel()
	limit := idsFrom(time.Now().AddDate(0, 0, -agedBy+1))
	for {
		var left int
		// In the order in which retention locks the tables.
		err := conn.QueryRow(ctx, `select (select count(*) from deliveries where id < $1) + (select count(*) from attempts where delivery_id < $1)
			+ (select count(*) from events where id < $1)`, limit).Scan(&left)
		if err != nil {
			return fmt.Errorf("count what is past its retention: %w", err)
		}
		if left == 0 {
			return nil
		}
		if pause(patient, leftTick) != nil {
			s.load.ledger.problemf("%d rows that are past their retention are left", left)
			return nil
		}
	}
}
