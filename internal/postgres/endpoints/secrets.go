package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// Target reads an endpoint with what a request needs: its headers, credentials and valid signing secrets, newest
// first. CodeNotFound: it was deleted.
func (s Reader) Target(ctx context.Context, id webhook.EndpointID) (webhook.Target, error) {
	target, _, err := s.TargetUntil(ctx, s.core.AsWorker(), id)
	return target, err
}

// TargetOf is Target for a tenant's own endpoint.
func (s Reader) TargetOf(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Target, error) {
	target, _, err := s.TargetUntil(ctx, s.core.OfTenant(tenantID), id)
	if err == nil && (target.TenantID != tenantID || target.Internal) {
		return webhook.Target{}, webhook.NotFound("endpoint")
	}
	return target, err
}

// TargetUntil is Target with the time at which the next secret expires; zero if none will.
func (s Reader) TargetUntil(ctx context.Context, as postgres.Caller, id webhook.EndpointID) (t webhook.Target, until time.Time, err error) {
	op := "read target " + id.String()
	var (
		row    endpointRow
		stored []storedSecret
	)
	err = as.WithConn(ctx, op, func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select `+endpointSelect+`, s.version, s.kek_id, s.wrapped_key, s.nonce, s.ciphertext, s.expires_at
			from endpoints e
			join endpoint_secrets s on s.endpoint_id = e.id and (s.expires_at is null or s.expires_at > now())
			where e.id = $1 and e.deleted_at is null order by s.version desc`, [16]byte(id))
		if err != nil {
			return err
		}
		stored, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (one storedSecret, err error) {
			row, err = scanEndpoint(r, &one.version, &one.KEKID, &one.WrappedKey, &one.Nonce, &one.Ciphertext, &one.expires)
			return one, err
		})
		if err == nil && len(stored) == 0 {
			return webhook.NotFound("endpoint")
		}
		return err
	})
	if err != nil {
		return webhook.Target{}, time.Time{}, err
	}
	// Without a connection: this may call a key management service.
	if t.Endpoint, err = s.openEndpoint(ctx, &row); err != nil {
		return webhook.Target{}, time.Time{}, notOpened(op, err)
	}
	for _, one := range stored {
		secret, err := s.openSecret(ctx, one.Sealed, t.TenantID, id, one.version)
		if err != nil {
			return webhook.Target{}, time.Time{}, notOpened(op, err)
		}
		t.Secrets = append(t.Secrets, secret)
		if one.expires != nil && (until.IsZero() || one.expires.Before(until)) {
			until = *one.expires
		}
	}
	return t, until, nil
}

// notOpened returns the error of a target that cannot be decrypted. An error with a Retry-After, of a key
// management service that is not available, keeps its code.
func notOpened(op string, err error) error {
	if errors.Is(err, context.Canceled) {
		return postgres.Translate(op, err)
	}
	if _, ok := errors.AsType[*webhook.Error](err); ok {
		return fmt.Errorf("%s: %w: %w", op, webhook.ErrNotOpened, err)
	}
	return &webhook.Error{
		Code: webhook.CodeInternal, Message: "a secret, header or credential of the endpoint cannot be decrypted",
		Err: fmt.Errorf("%s: %w: %w", op, webhook.ErrNotOpened, err),
	}
}

// storedSecret is a row of endpoint_secrets.
type storedSecret struct {
	postgres.Sealed

	version int
	expires *time.Time
}

// EndpointSecret returns the newest signing secret, after it has written that to the audit log.
func (s *Endpoints) EndpointSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) (string, error) {
	var secret string
	err := s.core.OfTenant(tenantID).InTx(ctx, "read secret of endpoint "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		var (
			version int
			sealed  postgres.Sealed
		)
		err := tx.QueryRow(ctx, `
			select s.version, s.kek_id, s.wrapped_key, s.nonce, s.ciphertext
			from endpoint_secrets s join endpoints e on e.id = s.endpoint_id
			where e.id = $1 and e.tenant_id = $2 and e.deleted_at is null and not e.internal order by s.version desc limit 1`, [16]byte(id), tenantID).
			Scan(&version, &sealed.KEKID, &sealed.WrappedKey, &sealed.Nonce, &sealed.Ciphertext)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("endpoint")
		}
		if err != nil {
			return err
		}
		if secret, err = s.openSecret(ctx, sealed, tenantID, id, version); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, audit.EndpointReadSecret, id.String(), nil)
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

func (s *Endpoints) insertSecret(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID, version int, secret string) error {
	sealed, err := s.sealSecret(ctx, tenantID, id, version, secret)
	if err != nil {
		return err
	}
	return insertSealed(ctx, tx, id, version, sealed)
}

func (s *Endpoints) sealSecret(ctx context.Context, tenantID string, id webhook.EndpointID, version int, secret string) (postgres.Sealed, error) {
	sealed, err := s.sealer.Seal(ctx, secret, SecretPlace(tenantID, id, version))
	if err != nil {
		return postgres.Sealed{}, fmt.Errorf("seal secret %d: %w", version, err)
	}
	return sealed, nil
}

func insertSealed(ctx context.Context, tx pgx.Tx, id webhook.EndpointID, version int, sealed postgres.Sealed) error {
	_, err := tx.Exec(ctx, `
		insert into endpoint_secrets (endpoint_id, version, kek_id, wrapped_key, nonce, ciphertext) values ($1, $2, $3, $4, $5, $6)`,
		[16]byte(id), version, sealed.KEKID, sealed.WrappedKey, sealed.Nonce, sealed.Ciphertext)
	return err
}

func (s Reader) openSecret(ctx context.Context, sealed postgres.Sealed, tenantID string, id webhook.EndpointID, version int) (string, error) {
	secret, err := s.sealer.Open(ctx, sealed, SecretPlace(tenantID, id, version))
	if err != nil {
		return "", fmt.Errorf("open secret %d: %w", version, err)
	}
	return secret, nil
}

// SecretPlace is what a sealed secret is bound to, so that it cannot be copied to another row.
func SecretPlace(tenantID string, id webhook.EndpointID, version int) string {
	return tenantID + "|" + id.String() + "|" + strconv.Itoa(version)
}

// HeadersPlace is what the sealed headers of an endpoint are bound to.
func HeadersPlace(e *webhook.Endpoint) string { return e.TenantID + "|" + e.ID.String() + "|headers" }

// sealedColumns are the columns of a sealed value that may be null.
type sealedColumns struct {
	kekID                         *string
	wrappedKey, nonce, ciphertext []byte
}

func (c sealedColumns) equal(d sealedColumns) bool {
	return (c.kekID == nil) == (d.kekID == nil) && (c.kekID == nil || *c.kekID == *d.kekID) &&
		bytes.Equal(c.wrappedKey, d.wrappedKey) && bytes.Equal(c.nonce, d.nonce) && bytes.Equal(c.ciphertext, d.ciphertext)
}

// sealedParts are the sealed values of a new endpoint.
type sealedParts struct {
	headers, auth sealedColumns
	secret        postgres.Sealed // the first
}

// sealNew seals the values of a new endpoint, before the tenant's row is locked.
func (s *Endpoints) sealNew(ctx context.Context, e *webhook.Endpoint, secret string) (parts sealedParts, err error) {
	if parts.headers, err = s.sealHeaders(ctx, e); err != nil {
		return parts, err
	}
	if parts.auth, err = s.sealAuth(ctx, e); err != nil {
		return parts, err
	}
	parts.secret, err = s.sealSecret(ctx, e.TenantID, e.ID, 1, secret)
	return parts, err
}

func (s *Endpoints) sealHeaders(ctx context.Context, e *webhook.Endpoint) (sealedColumns, error) {
	if len(e.Headers) == 0 {
		return sealedColumns{}, nil
	}
	text, err := json.Marshal(e.Headers)
	if err != nil {
		return sealedColumns{}, fmt.Errorf("seal headers: %w", err)
	}
	sealed, err := s.sealer.Seal(ctx, string(text), HeadersPlace(e))
	if err != nil {
		return sealedColumns{}, fmt.Errorf("seal headers: %w", err)
	}
	return sealedColumns{&sealed.KEKID, sealed.WrappedKey, sealed.Nonce, sealed.Ciphertext}, nil
}

func (s Reader) openHeaders(ctx context.Context, e *webhook.Endpoint, c sealedColumns) error {
	if c.kekID == nil {
		return nil
	}
	text, err := s.sealer.Open(ctx, postgres.Sealed{KEKID: *c.kekID, WrappedKey: c.wrappedKey, Nonce: c.nonce, Ciphertext: c.ciphertext}, HeadersPlace(e))
	if err != nil {
		return fmt.Errorf("open headers: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &e.Headers); err != nil {
		return fmt.Errorf("open headers: %w", errHeaders)
	}
	return nil
}

// errHeaders replaces the decoder's error, which would quote the headers.
var errHeaders = errors.New("not a JSON object of strings")
