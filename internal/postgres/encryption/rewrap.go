// Package encryption re-encrypts stored secrets with another key-encryption key.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/notifications"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	actionKeysRewrap = "keys.rewrap"

	rewrapBatch   = 500
	rewrapAtATime = 8 // data keys of a batch: a key management service takes milliseconds for each
	// rewrapPasses bounds the passes over all rows: a process that still encrypts with an
	// older key adds rows meanwhile.
	rewrapPasses = 10
	rewrapPause  = 200 * time.Millisecond // before such a pass
	mostNamed    = 20                     // rows that cannot be decrypted, in the result
)

// Encryption re-encrypts stored secrets when the key-encryption key changes.
type Encryption struct{ core *postgres.Core }

// New makes an Encryption.
func New(s *postgres.Core) *Encryption { return &Encryption{s} }

// ErrUnreadable is what a Rewrapper returns, wrapped, for a row that can never be decrypted:
// its key is unknown, or it was altered. Other errors are temporary.
var ErrUnreadable = errors.New("cannot be decrypted")

// Rewrapper re-encrypts with the current key-encryption key.
type Rewrapper interface {
	// Current is the id of the current key.
	Current(ctx context.Context) (kekID string, err error)
	// Rewrap returns sealed with its data key encrypted by the current key.
	Rewrap(ctx context.Context, sealed postgres.Sealed) (postgres.Sealed, error)
	Open(ctx context.Context, sealed postgres.Sealed, additional string) (plaintext string, err error)
}

// KEKUse is how many rows of a kind are encrypted with a key.
type KEKUse struct {
	KEKID string
	What  string // "signing secrets", "headers", "credentials", "links in mails"
	Rows  int64
}

// RewrapProgress is the progress of a Rewrap.
type RewrapProgress struct {
	What            string
	Done, Remaining int64
}

// Rewrapped is the result of a Rewrap.
type Rewrapped struct {
	Current    string
	Rows       int64    // re-encrypted with it
	Unreadable int64    // rows that cannot be decrypted, and stay as they are
	Named      []string // the first of them
	Uses       []KEKUse // afterwards
}

// Rewrap re-encrypts every stored secret with the current key, while others read and write.
// It changes a row only if the new form can be decrypted and the row has not changed
// meanwhile; it comes back to locked rows. After an error, or the end of ctx, the rows done
// stay done, and the next call does the rest.
func (s *Encryption) Rewrap(ctx context.Context, by webhook.Actor, keys Rewrapper, progress func(RewrapProgress)) (Rewrapped, error) {
	return s.RewrapInBatches(ctx, by, keys, rewrapBatch, progress)
}

// RewrapInBatches is Rewrap with the given number of rows at a time.
func (s *Encryption) RewrapInBatches(ctx context.Context, by webhook.Actor, keys Rewrapper, batch int, progress func(RewrapProgress)) (Rewrapped, error) {
	if _, err := endpoints.PruneExpiredSecrets(ctx, s.core); err != nil {
		return Rewrapped{}, err
	}
	current, err := keys.Current(ctx)
	if err != nil {
		return Rewrapped{}, fmt.Errorf("look up the current key: %w", err)
	}
	run := &rewrapping{store: s, keys: keys, batch: batch, progress: progress, unreadable: map[sealedKey]struct{}{}}
	run.result.Current = current
	if err := run.passes(ctx); err != nil || run.result.Rows == 0 {
		return run.result, err
	}
	result := run.result
	return result, s.core.AsWorker().InTx(ctx, "write the audit entry of the rewrap", func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, by, "", actionKeysRewrap, current,
			postgres.JSONBytes(map[string]int64{"rows": result.Rows, "unreadable": result.Unreadable}))
	})
}

// KEKUses counts what is encrypted with which key, of all tenants, without expired secrets. The
// login needs the worker's role or the operator's.
func (s *Encryption) KEKUses(ctx context.Context) ([]KEKUse, error) {
	as := s.core.AsOperator()
	worker, err := s.core.May(ctx, postgres.RoleWorker)
	if err != nil {
		return nil, err
	}
	if worker {
		as = s.core.AsWorker()
	}
	var order []string
	for _, p := range sealedPlaces() {
		order = append(order, p.What)
	}
	return postgres.QueryAll(ctx, as, "count what is sealed", pgx.RowToStructByPos[KEKUse],
		`select kek_id, what, used from kek_uses order by array_position($1::text[], what), kek_id`, order)
}

// sealedPlace is where secrets are stored: four columns of a table, with a prefix. A test
// fails if the schema has others.
type sealedPlace struct {
	What, Table, Prefix string
	id, version         string // the key of its rows: version may be a constant
	additional          func(tenantID string, k sealedKey) string
}

func sealedPlaces() []sealedPlace {
	return []sealedPlace{
		{"signing secrets", "endpoint_secrets", "", "endpoint_id", "version", func(tenantID string, k sealedKey) string {
			return endpoints.SecretPlace(tenantID, webhook.EndpointID(k.id), int(k.version))
		}},
		{"headers", "endpoints", "headers_", "id", "0", func(tenantID string, k sealedKey) string {
			return endpoints.HeadersPlace(&webhook.Endpoint{TenantID: tenantID, ID: webhook.EndpointID(k.id)})
		}},
		{"credentials", "endpoints", "auth_", "id", "0", func(tenantID string, k sealedKey) string {
			return endpoints.AuthPlace(&webhook.Endpoint{TenantID: tenantID, ID: webhook.EndpointID(k.id)})
		}},
		{"links in mails", "notification_keys", "", "id", "0", func(string, sealedKey) string { return notifications.KeyPlace }},
	}
}

// sealedKey is the key of a row of any place.
type sealedKey struct {
	what    string
	id      [16]byte
	version int32
}

// sealedRow is a row with a secret, and its new form.
type sealedRow struct {
	sealedKey

	tenantID string
	was, is  postgres.Sealed
	err      error
}

// left is how many rows still need another key.
func (r *Rewrapped) left() (rows int64) {
	for _, use := range r.Uses {
		if use.KEKID != r.Current {
			rows += use.Rows
		}
	}
	return rows
}

type rewrapping struct {
	store      *Encryption
	keys       Rewrapper
	batch      int
	progress   func(RewrapProgress)
	unreadable map[sealedKey]struct{}
	result     Rewrapped
}

// passes goes through all places until no row that can be decrypted is left: a row may have been
// locked, or written with an older key behind a pass.
func (r *rewrapping) passes(ctx context.Context) (err error) {
	for pass := range rewrapPasses {
		if pass > 0 {
			if err := pause(ctx, rewrapPause); err != nil {
				return err
			}
		}
		for _, place := range sealedPlaces() {
			if err := r.place(ctx, place); err != nil {
				return fmt.Errorf("rewrap %s: %w", place.What, err)
			}
		}
		r.result.Unreadable = int64(len(r.unreadable))
		if r.result.Uses, err = r.store.KEKUses(ctx); err != nil || r.result.left() <= r.result.Unreadable {
			return err
		}
	}
	return nil
}

// place goes through one place, a batch at a time.
func (r *rewrapping) place(ctx context.Context, p sealedPlace) error {
	total, err := r.count(ctx, p)
	if err != nil {
		return err
	}
	var seen, done int64
	for after := (sealedKey{version: -1}); ; {
		rows, err := r.read(ctx, p, after)
		if err != nil || len(rows) == 0 {
			return err
		}
		seen += int64(len(rows))
		after = rows[len(rows)-1].sealedKey
		rows = slices.DeleteFunc(rows, func(row sealedRow) bool {
			_, known := r.unreadable[row.sealedKey]
			return known
		})
		r.rewrap(ctx, p, rows)
		ready, keyErr := r.sort(rows)
		written, err := r.write(ctx, p, ready)
		done += written
		r.result.Rows += written
		if err := errors.Join(keyErr, err); err != nil {
			return err
		}
		if r.progress != nil {
			r.progress(RewrapProgress{What: p.What, Done: done, Remaining: max(0, total-seen)})
		}
	}
}

// count is how many rows of a place have another key.
func (r *rewrapping) count(ctx context.Context, p sealedPlace) (int64, error) {
	counted, err := postgres.QueryAll(ctx, r.store.core.AsWorker(), "count "+p.What, pgx.RowTo[int64],
		fmt.Sprintf(`select count(*) from %s where %skek_id <> $1`, p.Table, p.Prefix), r.result.Current)
	if err != nil {
		return 0, err
	}
	return counted[0], nil
}

// read reads the next batch of them.
func (r *rewrapping) read(ctx context.Context, p sealedPlace, after sealedKey) ([]sealedRow, error) {
	tenant := `tenant_id`
	switch p.Table {
	case "notification_keys":
		tenant = `''`
	case "endpoint_secrets":
		tenant = `(select e.tenant_id from endpoints e where e.id = ` + p.id + `)`
	}
	return postgres.QueryAll(ctx, r.store.core.AsWorker(), "read "+p.What, func(row pgx.CollectableRow) (sealedRow, error) {
		found := sealedRow{sealedKey: sealedKey{what: p.What}}
		err := row.Scan(&found.id, &found.version, &found.tenantID, &found.was.KEKID, &found.was.WrappedKey, &found.was.Nonce, &found.was.Ciphertext)
		return found, err
	}, fmt.Sprintf(`
		select %[1]s, %[2]s, %[3]s, %[4]skek_id, %[4]swrapped_key, %[4]snonce, %[4]sciphertext
		from %[5]s where (%[1]s, %[2]s) > ($1, $2) and %[4]skek_id <> $3 order by 1, 2 limit $4`, p.id, p.version, tenant, p.Prefix, p.Table),
		after.id, after.version, r.result.Current, r.batch)
}

// rewrap computes the new form of each row, and checks that it can be decrypted.
func (r *rewrapping) rewrap(ctx context.Context, p sealedPlace, rows []sealedRow) {
	next := make(chan *sealedRow)
	var workers sync.WaitGroup
	for range min(rewrapAtATime, len(rows)) {
		workers.Go(func() {
			for row := range next {
				if row.is, row.err = r.keys.Rewrap(ctx, row.was); row.err == nil {
					_, row.err = r.keys.Open(ctx, row.is, p.additional(row.tenantID, row.sealedKey))
				}
			}
		})
	}
	for i := range rows {
		next <- &rows[i]
	}
	close(next)
	workers.Wait()
}

// sort returns the rows that can be decrypted, and the first error of another kind.
func (r *rewrapping) sort(rows []sealedRow) (ready []sealedRow, err error) {
	for i := range rows {
		row := &rows[i]
		switch {
		case row.err == nil:
			ready = append(ready, *row)
		case errors.Is(row.err, ErrUnreadable):
			r.unreadable[row.sealedKey] = struct{}{}
			if len(r.result.Named) < mostNamed {
				r.result.Named = append(r.result.Named, fmt.Sprintf("%s of %s (%s): %s", row.what, webhook.EndpointID(row.id), row.was.KEKID, row.err))
			}
		case err == nil:
			err = row.err
		}
	}
	return ready, err
}

// write stores the new forms of the rows that are unchanged and not locked: it waits for no
// other transaction, and none waits long for it.
func (r *rewrapping) write(ctx context.Context, p sealedPlace, rows []sealedRow) (written int64, err error) {
	var (
		ids       [][16]byte
		versions  []int32
		old, wrap [][]byte
		kekIDs    []string
	)
	for i := range rows {
		ids, versions, old = append(ids, rows[i].id), append(versions, rows[i].version), append(old, rows[i].was.WrappedKey)
		kekIDs, wrap = append(kekIDs, rows[i].is.KEKID), append(wrap, rows[i].is.WrappedKey)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	failpoint.Hit("rewrap-before")
	err = r.store.core.AsWorker().WithConn(ctx, "write "+p.What, func(ctx context.Context, conn postgres.Querier) error {
		tag, err := conn.Exec(ctx, fmt.Sprintf(`
			with wanted as (
				select w.id, w.version, w.old, w.kek_id, w.wrapped_key
				from unnest($1::uuid[], $2::int[], $3::bytea[], $4::text[], $5::bytea[]) w (id, version, old, kek_id, wrapped_key)),
			mine as (
				select t.%[1]s as id, %[5]s as version from %[3]s t
				join wanted w on t.%[1]s = w.id and %[5]s = w.version and t.%[4]swrapped_key = w.old
				for no key update of t skip locked)
			update %[3]s t set %[4]skek_id = w.kek_id, %[4]swrapped_key = w.wrapped_key
			from wanted w join mine m on m.id = w.id and m.version = w.version
			where t.%[1]s = w.id and %[5]s = w.version and t.%[4]swrapped_key = w.old`, p.id, p.version, p.Table, p.Prefix, p.versionOf("t")),
			ids, versions, old, kekIDs, wrap)
		written = tag.RowsAffected()
		return err
	})
	failpoint.Hit("rewrap-after")
	return written, err
}

// versionOf is the version of a table's row: a column, or a constant.
func (p sealedPlace) versionOf(alias string) string {
	if p.version == "0" {
		return p.version
	}
	return alias + "." + p.version
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
