// Package keys stores API keys and authenticates by them, from a cache.
package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// Keys stores API keys and authenticates callers.
type Keys struct {
	core *postgres.Core

	cache *keyCache
}

// New makes a Keys, which Close ends.
func New(s *postgres.Core) *Keys {
	keys := &Keys{core: s}
	keys.cache = newKeyCache(s, keys.livingKey)
	return keys
}

// Close ends the look-ups under way.
func (s *Keys) Close() { s.cache.close() }

const keyColumns = `id, coalesce(tenant_id, ''), scope, name, sha256, created_at, expires_at, last_used_at`

// CreateKey stores a key of a tenant, or of an operator when TenantID is "". The
// times are the caller's. The key ends with the key of the caller. CodeNotFound: no such tenant; CodeConflict: the id exists.
func (s *Keys) CreateKey(ctx context.Context, by webhook.Actor, k webhook.Key) error {
	defer s.core.ChangedHere(postgres.Change{Kind: postgres.ChangeKey, ID: k.ID.String()})
	return s.core.OfTenantOrOperator(k.TenantID).InTx(ctx, "create key "+k.ID.String(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			insert into api_keys (id, tenant_id, scope, name, sha256, created_at, expires_at, last_used_at, made_by)
			values ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9)`,
			[16]byte(k.ID), k.TenantID, int16(k.Scope), k.Name, k.SHA256[:], k.CreatedAt, postgres.Optional(k.ExpiresAt), postgres.Optional(k.LastUsedAt),
			pgtype.UUID{Bytes: by.KeyID, Valid: !by.KeyID.IsZero()})
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "api_keys_tenant_id_fkey" {
			return webhook.NotFound("tenant")
		}
		if err != nil {
			return err
		}
		if err := postgres.Notify(ctx, tx, postgres.Change{Kind: postgres.ChangeKey, ID: k.ID.String(), Tenant: k.TenantID}); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, k.TenantID, audit.KeyCreate, k.ID.String(), postgres.JSONBytes(map[string]string{"scope": k.Scope.String()}))
	})
}

// ListKeys lists the keys of a tenant, or the operator's for "", newest first: expired
// keys included, revoked ones not.
func (s *Keys) ListKeys(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Key, error) {
	var list []webhook.Key
	err := s.core.OfTenantOrOperator(tenantID).WithConn(ctx, "list keys of "+tenantID, func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select `+keyColumns+` from api_keys
			where tenant_id is not distinct from nullif($1, '') and revoked_at is null and `+postgres.PageCondition+`
			order by id desc limit $3`, tenantID, p.After, p.Limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.Key, error) { return scanKey(row) })
		return err
	})
	return list, err
}

// RevokeKey revokes a key of a tenant, or of the operator for "", and the keys that were made with it, and with those: at once
// in this process, within 2 s in the others. CodeNotFound when there is none, or it is revoked already.
func (s *Keys) RevokeKey(ctx context.Context, by webhook.Actor, tenantID string, id webhook.KeyID) error {
	changes := []postgres.Change{{Kind: postgres.ChangeKey, ID: id.String(), Tenant: tenantID}}
	defer func() {
		for _, change := range changes {
			s.core.ChangedHere(change)
		}
	}()
	return s.core.OfTenantOrOperator(tenantID).InTx(ctx, "revoke key "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update api_keys set revoked_at = now()
			where id = $1 and tenant_id is not distinct from nullif($2, '') and revoked_at is null`, [16]byte(id), tenantID)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return webhook.NotFound("key")
		}
		children, err := revokeChildren(ctx, tx, id)
		if err != nil {
			return err
		}
		changes = append(changes[:1], children...)
		for i, change := range changes {
			if err := postgres.Notify(ctx, tx, change); err != nil {
				return err
			}
			var detail []byte
			if i > 0 {
				detail = postgres.JSONBytes(map[string]string{"with": id.String()})
			}
			if err := audit.Write(ctx, tx, by, change.Tenant, audit.KeyRevoke, change.ID, detail); err != nil {
				return err
			}
		}
		return nil
	})
}

// revokeChildren revokes the keys that were made with a key, and with those.
func revokeChildren(ctx context.Context, tx pgx.Tx, id webhook.KeyID) ([]postgres.Change, error) {
	rows, err := tx.Query(ctx, `
		with recursive made as (
			select id from api_keys where made_by = $1
			union select k.id from api_keys k join made on k.made_by = made.id)
		update api_keys set revoked_at = now() where id = any(array(select id from made)) and revoked_at is null
		returning id, coalesce(tenant_id, '')`, [16]byte(id))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (postgres.Change, error) {
		var child webhook.KeyID
		change := postgres.Change{Kind: postgres.ChangeKey}
		err := row.Scan((*[16]byte)(&child), &change.Tenant)
		change.ID = child.String()
		return change, err
	})
}

// Authenticate returns the key with this id if it is valid and has this hash;
// CodeUnauthenticated otherwise, with the same message and after the same work
// whatever is wrong. It reads the cache: see keyCache.
func (s *Keys) Authenticate(ctx context.Context, id webhook.KeyID, sha256 [32]byte) (webhook.Key, error) {
	k, err := s.cache.authenticate(ctx, id, sha256)
	if err == nil {
		s.cache.use(id, time.Now())
	}
	return k, err
}

// Check is Authenticate without a use of the key.
func (s *Keys) Check(ctx context.Context, id webhook.KeyID, sha256 [32]byte) (webhook.Key, error) {
	return s.cache.authenticate(ctx, id, sha256)
}

// livingKey reads a key. It returns nil when there is none, and CodeUnauthenticated when it
// is revoked.
func (s *Keys) livingKey(ctx context.Context, id webhook.KeyID) (*webhook.Key, error) {
	var (
		found   *webhook.Key
		revoked bool
	)
	err := s.core.AsOperator().WithConn(ctx, "read key "+id.String(), func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `select `+keyColumns+`, revoked_at is not null from api_keys where id = $1`, [16]byte(id))
		if err != nil {
			return err
		}
		k, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (webhook.Key, error) { return scanKey(row, &revoked) })
		if postgres.IsNoRows(err) {
			return nil
		}
		found = &k
		return err
	})
	if err != nil {
		return nil, err
	}
	if revoked {
		return nil, errBadKey(webhook.ErrKeyRevoked)
	}
	return found, nil
}

// scanKey reads keyColumns, and further columns into further.
func scanKey(row pgx.CollectableRow, further ...any) (webhook.Key, error) {
	var (
		k             webhook.Key
		scope         int16
		sum           []byte
		expires, used *time.Time
	)
	err := row.Scan(append([]any{(*[16]byte)(&k.ID), &k.TenantID, &scope, &k.Name, &sum, &k.CreatedAt, &expires, &used}, further...)...)
	if err != nil {
		return webhook.Key{}, fmt.Errorf("read row of api_keys: %w", err)
	}
	copy(k.SHA256[:], sum)         // 32 bytes: a check of the table
	k.Scope = webhook.Scope(scope) //nolint:gosec // written by us from a Scope
	k.CreatedAt, k.ExpiresAt, k.LastUsedAt = k.CreatedAt.UTC(), postgres.OrZero(expires), postgres.OrZero(used)
	return k, nil
}
