package endpoints

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

const actionEndpointRotateSecret = "endpoint.rotate_secret"

// RotateSecret gives an endpoint a new secret: the caller's, or a new one for its signature scheme. The present
// secrets are used as well for the grace period, or until they expire if that is sooner. It takes effect as a
// change of an endpoint does.
//
// CodeInvalid: the caller's secret does not fit the signature scheme; CodeConflict: so many secrets are in use
// that one has to expire first.
func (s *Endpoints) RotateSecret(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, r webhook.Rotation) (webhook.Rotated, error) {
	done := webhook.Rotated{NewSecret: r.NewSecret}
	err := s.changeEndpoint(ctx, s.core.OfTenant(tenantID), "rotate secret of", tenantID, id, func(ctx context.Context, tx pgx.Tx) error {
		var scheme string
		err := tx.QueryRow(ctx, `
			select signature from endpoints where id = $1 and tenant_id = $2 and deleted_at is null and not internal for no key update`,
			[16]byte(id), tenantID).
			Scan(&scheme)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("endpoint")
		}
		if err != nil {
			return err
		}
		if done.Secret == "" {
			if done.NewSecret, err = s.makeSecret(scheme); err != nil {
				return fmt.Errorf("make a secret: %w", err)
			}
		}
		if !webhook.SecretFits(scheme, done.Secret) {
			return webhook.UnfitSecret(scheme)
		}
		if done.OldUntil, err = s.addSecret(ctx, tx, tenantID, id, done.Secret, r.Grace); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update endpoints set public_key = $2, updated_at = now() where id = $1`, [16]byte(id), done.PublicKey)
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, actionEndpointRotateSecret, id.String(), postgres.JSONBytes(map[string]string{"grace": r.Grace.String()}))
	})
	if err != nil {
		return webhook.Rotated{}, err
	}
	return done, nil
}

// fitSecret gives an endpoint whose signature scheme has changed a secret for the new scheme, unless it has one.
// The old secret is used for the usual grace period if the new scheme allows that: v1 and v1a share a header.
func (s *Endpoints) fitSecret(ctx context.Context, tx pgx.Tx, before, after *webhook.Endpoint) error {
	if webhook.SecretPrefix(before.Signature) == webhook.SecretPrefix(after.Signature) {
		return nil
	}
	made, err := s.makeSecret(after.Signature)
	if err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	after.PublicKey = made.PublicKey
	_, err = s.addSecret(ctx, tx, after.TenantID, after.ID, made.Secret, webhook.DefaultGrace)
	return err
}

// addSecret stores another secret under the endpoint's lock, sets when the others expire, and removes expired ones.
// oldUntil is when the last of the others expires.
func (s *Endpoints) addSecret(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID, secret string, grace time.Duration,
) (oldUntil time.Time, err error) {
	var (
		newest, living int
		until          pgtype.Timestamptz
	)
	// The time of the statement: the transaction may have waited for its lock.
	err = tx.QueryRow(ctx, `
		with gone as (
			delete from endpoint_secrets where endpoint_id = $1 and ($2 = interval '0' or expires_at <= statement_timestamp())),
		rest as (
			update endpoint_secrets set expires_at = least(expires_at, statement_timestamp() + $2)
			where endpoint_id = $1 and $2 > interval '0' and (expires_at is null or expires_at > statement_timestamp())
			returning expires_at)
		select (select max(version) from endpoint_secrets where endpoint_id = $1), (select count(*) from rest), (select max(expires_at) from rest)`,
		[16]byte(id), grace).Scan(&newest, &living, &until)
	if err != nil {
		return time.Time{}, err
	}
	if living >= webhook.MaxSecrets {
		return time.Time{}, &webhook.Error{Code: webhook.CodeConflict, Message: fmt.Sprintf(
			"the endpoint has %d secrets in use; wait until one of them has expired, or rotate with the grace 0s, which ends them", living)}
	}
	return until.Time.UTC(), s.insertSecret(ctx, tx, tenantID, id, newest+1, secret)
}

// PruneSecrets removes expired secrets and returns their number.
func (s *Endpoints) PruneSecrets(ctx context.Context) (removed int64, err error) {
	return PruneExpiredSecrets(ctx, s.core)
}

// PruneExpiredSecrets is PruneSecrets.
func PruneExpiredSecrets(ctx context.Context, s *postgres.Core) (removed int64, err error) {
	err = s.AsWorker().WithConn(ctx, "remove expired secrets", func(ctx context.Context, conn postgres.Querier) error {
		tag, err := conn.Exec(ctx, `delete from endpoint_secrets where expires_at < now()`)
		removed = tag.RowsAffected()
		return err
	})
	return removed, err
}
