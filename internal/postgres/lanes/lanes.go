// Package lanes stores the leases of lanes: which process admits the requests to which endpoints.
package lanes

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// leaseTime is for how long a lease holds after it was renewed, by the database's clock.
	leaseTime = 8 * time.Second
	// unseenTime is how long a process must have gone without a renewal to be evicted.
	unseenTime = 3 * time.Second
	// rememberTime is for how long a process that was not seen is kept: it may have requests under way, of
	// webhook.MaxTimeout at most.
	rememberTime = time.Minute
)

// Lanes stores leases.
type Lanes struct{ core *postgres.Core }

// New makes a Lanes.
func New(s *postgres.Core) *Lanes { return &Lanes{s} }

// Renew notes that a process runs, releases the lanes in release, renews its leases of the others, even one that has ended if no
// other process took the lane, and takes lanes without an owner up to its share.
func (s *Lanes) Renew(ctx context.Context, self webhook.Process, release []int) (fleet webhook.Fleet, err error) {
	err = s.core.AsWorker().InTx(ctx, "renew the leases of lanes", func(ctx context.Context, tx pgx.Tx) error {
		fleet = webhook.Fleet{}
		batch := &pgx.Batch{}
		note(batch, self)
		batch.Queue(`update lanes set owner = null, expires_at = now() where owner = $1 and lane = any($2)`, self.ID, release)
		batch.Queue(`update lanes set expires_at = now() + $2::bigint * interval '1 millisecond' where owner = $1`, self.ID, leaseTime.Milliseconds())
		batch.Queue(`
			select ceil($1::numeric / greatest(count(*), 1))::int from processes
			where not leaving and address <> '' and seen_until > now()`, webhook.Lanes).
			QueryRow(func(row pgx.Row) error { return row.Scan(&fleet.Share) })
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if !self.Leaving {
			if fleet.Taken, err = take(ctx, tx, self.ID, fleet.Share); err != nil {
				return err
			}
		}
		return read(ctx, tx, &fleet)
	})
	if err != nil {
		return webhook.Fleet{}, err
	}
	return fleet, nil
}

// Register notes that a process runs which owns no lanes, in the role of an API.
func (s *Lanes) Register(ctx context.Context, self webhook.Process) (fleet webhook.Fleet, err error) {
	err = s.core.AsOperator().InTx(ctx, "register with the owners of lanes", func(ctx context.Context, tx pgx.Tx) error {
		fleet = webhook.Fleet{}
		batch := &pgx.Batch{}
		note(batch, self)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		return read(ctx, tx, &fleet)
	})
	if err != nil {
		return webhook.Fleet{}, err
	}
	return fleet, nil
}

// note notes that a process runs, and removes those that have ended without saying so.
func note(batch *pgx.Batch, self webhook.Process) {
	batch.Queue(`
		insert into processes (id, address, certificate, leaving, machine, seen_until)
		values ($1, $2, $3, $4, $6, now() + $5::bigint * interval '1 millisecond')
		on conflict (id) do update set leaving = excluded.leaving, seen_until = excluded.seen_until`,
		self.ID, self.Address, self.Certificate[:], self.Leaving, leaseTime.Milliseconds(), self.Machine)
	batch.Queue(`
		delete from processes where id in (
			select id from processes where seen_until < now() - $1::bigint * interval '1 millisecond' order by id for update skip locked)`,
		rememberTime.Milliseconds())
}

// take takes lanes whose leases have ended, until the process has its share.
func take(ctx context.Context, tx pgx.Tx, id string, share int) ([]webhook.TakenLane, error) {
	rows, err := tx.Query(ctx, `
		with mine as (select count(*) as n from lanes where owner = $1),
		free as (
			select lane, greatest(expires_at, now() - interval '1 hour') as ended from lanes where owner is null or expires_at < now()
			order by lane limit (select greatest($2 - n, 0) from mine) for update skip locked)
		update lanes l set owner = $1, epoch = epoch + 1, expires_at = now() + $3::bigint * interval '1 millisecond'
		from free where l.lane = free.lane
		returning l.lane, l.epoch, (extract(epoch from now() - free.ended) * 1000)::bigint`, id, share, leaseTime.Milliseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (taken webhook.TakenLane, err error) {
		var lane int16
		var ended int64
		err = row.Scan(&lane, &taken.Epoch, &ended)
		taken.Lane, taken.EndedAgo = int(lane), time.Duration(ended)*time.Millisecond
		return taken, err
	})
}

// read reads the owners of all lanes, and the processes.
func read(ctx context.Context, tx pgx.Tx, fleet *webhook.Fleet) error {
	batch := &pgx.Batch{}
	batch.Queue(`select lane, coalesce(owner, ''), epoch from lanes`).Query(func(rows pgx.Rows) error {
		var number int16
		var lane webhook.Lane
		_, err := pgx.ForEachRow(rows, []any{&number, &lane.Owner, &lane.Epoch}, func() error {
			if number < 0 || int(number) >= webhook.Lanes {
				return fmt.Errorf("there is a lane %d, of %d", number, webhook.Lanes)
			}
			fleet.Lanes[number] = lane
			return nil
		})
		return err
	})
	batch.Queue(`select ` + columns + ` from processes order by id`).Query(func(rows pgx.Rows) (err error) {
		fleet.Processes, err = pgx.CollectRows(rows, scan)
		return err
	})
	return tx.SendBatch(ctx, batch).Close()
}

const columns = "id, address, certificate, leaving, machine"

func scan(row pgx.CollectableRow) (p webhook.Process, err error) {
	var certificate []byte
	err = row.Scan(&p.ID, &p.Address, &certificate, &p.Leaving, &p.Machine)
	copy(p.Certificate[:], certificate)
	return p, err
}

// Owners returns the processes that may own lanes and were seen lately.
func (s *Lanes) Owners(ctx context.Context) ([]webhook.Process, error) {
	var all []webhook.Process
	err := s.core.AsWorker().InTx(ctx, "read the processes that own lanes", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select `+columns+` from processes where address <> '' and seen_until > now() order by id`)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// Addresses are where the processes listen for each other, as they have said. asAPI reads them in the role of an API.
func (s *Lanes) Addresses(ctx context.Context, asAPI bool) ([]string, error) {
	role := s.core.AsWorker()
	if asAPI {
		role = s.core.AsOperator()
	}
	return postgres.QueryAll(ctx, role, "read the addresses of processes", pgx.RowTo[string],
		`select address from processes where address <> '' order by address limit $1`, maxAddresses)
}

// maxAddresses bounds Addresses: only workers have one.
const maxAddresses = 1000

// Leave removes a process that ends. Its leases end at once.
func (s *Lanes) Leave(ctx context.Context, id string) error {
	_, err := s.remove(ctx, id, 0)
	return err
}

// Evict removes a process at whose address nothing listens any more, unless it was seen lately: then something else refused the
// connection. Its leases end at once.
func (s *Lanes) Evict(ctx context.Context, id string) (evicted bool, err error) {
	return s.remove(ctx, id, unseenTime)
}

// remove removes a process that was not seen for some time.
func (s *Lanes) remove(ctx context.Context, id string, unseen time.Duration) (removed bool, err error) {
	err = s.core.AsWorker().InTx(ctx, "remove process "+id, func(ctx context.Context, tx pgx.Tx) error {
		found, err := tx.Exec(ctx, `delete from processes where id = $1 and seen_until <= now() + ($2::bigint - $3::bigint) * interval '1 millisecond'`,
			id, leaseTime.Milliseconds(), unseen.Milliseconds())
		if err != nil {
			return err
		}
		if removed = found.RowsAffected() > 0; !removed {
			return nil
		}
		_, err = tx.Exec(ctx, `update lanes set owner = null, expires_at = least(expires_at, now()) where owner = $1`, id)
		return err
	})
	return removed && err == nil, err
}
