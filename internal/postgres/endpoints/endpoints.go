// Package endpoints stores endpoints with their secrets, headers and credentials, which are encrypted
// ("sealed"). Reader reads them, and Cache keeps them in memory.
package endpoints

import (
	"context"
	"maps"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/deliveries"
	"github.com/everpost/everpost/internal/postgres/tenants"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Endpoints writes endpoints with their secrets, headers and credentials.
type Endpoints struct {
	Reader

	cache      *Cache
	quotas     *tenants.Quotas
	events     stateEvents
	deliveries *deliveries.Deliveries
	releases   *deliveries.Releases
	failures   failureRecord
	makeSecret func(scheme string) (webhook.NewSecret, error)
}

// Config is what Endpoints needs.
type Config struct {
	Reader     Reader
	Cache      *Cache
	Quotas     *tenants.Quotas
	Events     stateEvents
	Deliveries *deliveries.Deliveries
	Releases   *deliveries.Releases
	Failures   failureRecord
	MakeSecret func(scheme string) (webhook.NewSecret, error)
}

// New returns an Endpoints.
func New(c Config) *Endpoints {
	return &Endpoints{
		Reader: c.Reader, cache: c.Cache, quotas: c.Quotas, events: c.Events, deliveries: c.Deliveries, releases: c.Releases,
		failures: c.Failures, makeSecret: c.MakeSecret,
	}
}

// stateEvents writes the operational event of a change of state.
type stateEvents interface {
	NoteState(ctx context.Context, tx pgx.Tx, e *webhook.Endpoint) error
}

// failureRecord has the failures for which endpoints are disabled.
type failureRecord interface {
	Forget(ctx context.Context, tx pgx.Tx, id webhook.EndpointID) error
}

// Cache is the cache of endpoints.
func (s *Endpoints) Cache() *Cache { return s.cache }

// CreateEndpoint stores an endpoint with its first secret. It sets the version and the times, and the id if
// that is zero. CodeNotFound: there is no such tenant; CodeQuota: the tenant has as many endpoints as it may.
//
// Every event that is accepted after it has returned is matched against the endpoint.
func (s *Endpoints) CreateEndpoint(ctx context.Context, by webhook.Actor, e webhook.Endpoint, secret string) (webhook.Endpoint, error) {
	if e.ID.IsZero() {
		e.ID = webhook.NewEndpointID()
	}
	e.Version = 1
	var tenants *retry.Policy
	sealed, err := s.sealNew(ctx, &e, secret)
	if err != nil {
		return webhook.Endpoint{}, postgres.Translate("create endpoint "+e.ID.String(), err)
	}
	err = s.changeEndpoint(ctx, s.core.OfTenant(e.TenantID), "create", e.TenantID, e.ID, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.quotas.AllowEndpoint(ctx, tx, e.TenantID); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, endpointInsert, rowOf(&e, sealed.headers, sealed.auth).written()...).Scan(&e.CreatedAt, &e.UpdatedAt, &tenants)
		if err != nil {
			return err
		}
		e.Inherited = s.Inherited(tenants)
		if err := insertSealed(ctx, tx, e.ID, 1, sealed.secret); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, e.TenantID, audit.EndpointCreate, e.ID.String(), nil)
	})
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		return webhook.Endpoint{}, webhook.NotFound("tenant")
	}
	if err != nil {
		return webhook.Endpoint{}, err
	}
	e.CreatedAt, e.UpdatedAt = e.CreatedAt.UTC(), e.UpdatedAt.UTC()
	return e, nil
}

// UpdateEndpoint locks and reads an endpoint, lets change edit it, and writes it with the next version. An
// error of change is returned unchanged, and nothing is written then, nor if change changes nothing. change
// must be quick, because other changes of the tenant's endpoints wait for it. Its changes of ids, version and
// times are ignored.
func (s *Endpoints) UpdateEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID,
	change func(*webhook.Endpoint) error,
) (webhook.Endpoint, error) {
	// Decrypt before any lock: that may call a key management service.
	row, err := s.endpointRow(ctx, tenantID, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	known, err := s.openEndpoint(ctx, &row)
	if err != nil {
		return webhook.Endpoint{}, postgres.Translate("update endpoint "+id.String(), err)
	}
	open := func(ctx context.Context, now *endpointRow) (webhook.Endpoint, error) {
		if !now.headers.equal(row.headers) || !now.auth.equal(row.auth) { // changed meanwhile
			return s.openEndpoint(ctx, now)
		}
		e := s.endpointOfRow(now)
		e.Headers, e.Auth, e.Certificate = known.Headers, known.Auth, known.Certificate
		return e, nil
	}
	return s.editEndpoint(ctx, s.core.OfTenant(tenantID), by, tenantID, id, open,
		func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error { return change(e) }, 0)
}

// UpdateSealed is UpdateEndpoint with a change that may query the database, and that does not see headers and
// credentials: they stay encrypted, so that no key is needed. A resume begins the release at the rate, 0 for
// Everpost's own pace.
func (s *Endpoints) UpdateSealed(ctx context.Context, as postgres.Caller, by webhook.Actor, tenantID string, id webhook.EndpointID,
	change func(context.Context, pgx.Tx, *webhook.Endpoint) error, rate int,
) (webhook.Endpoint, error) {
	closed := func(_ context.Context, row *endpointRow) (webhook.Endpoint, error) { return s.endpointOfRow(row), nil }
	return s.editEndpoint(ctx, as, by, tenantID, id, closed, change, rate)
}

// editEndpoint implements both. open decrypts the row that was read; nil: it stays encrypted.
func (s *Endpoints) editEndpoint(ctx context.Context, as postgres.Caller, by webhook.Actor, tenantID string, id webhook.EndpointID,
	open func(context.Context, *endpointRow) (webhook.Endpoint, error),
	change func(context.Context, pgx.Tx, *webhook.Endpoint) error, rate int,
) (webhook.Endpoint, error) {
	var (
		e         webhook.Endpoint
		changeErr error
	)
	err := s.changeEndpoint(ctx, as, "update", tenantID, id, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			select `+endpointSelect+` from endpoints e
			where id = $1 and tenant_id = $2 and deleted_at is null and not internal for no key update`, [16]byte(id), tenantID)
		if err != nil {
			return err
		}
		row, err := collectEndpoint(rows)
		if err != nil {
			return err
		}
		before, err := open(ctx, &row)
		if err != nil {
			return err
		}
		e = cloneEndpoint(&before)
		changeErr = change(ctx, tx, &e)
		if changeErr != nil {
			return changeErr
		}
		e.ID, e.TenantID, e.Version, e.CreatedAt, e.UpdatedAt = before.ID, before.TenantID, before.Version, before.CreatedAt, before.UpdatedAt
		changed := audit.Changed(&before, &e)
		if len(changed) == 0 {
			return postgres.ErrUnchanged
		}
		if e.State != before.State {
			e.StateSince, e.StateBy = s.core.Now().UTC().Truncate(time.Microsecond), by.Who()
		}
		e.Version++
		if err := s.fitSecret(ctx, tx, &before, &e); err != nil {
			return err
		}
		if err := s.writeEndpoint(ctx, tx, &row, &before, &e); err != nil {
			return err
		}
		if err := s.followChange(ctx, tx, &before, &e, rate); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, changeAction(&before, &e), id.String(), postgres.JSONBytes(map[string][]string{"changed": changed}))
	})
	if changeErr != nil {
		return webhook.Endpoint{}, changeErr
	}
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return e, nil
}

// changeAction returns the action of a change in the audit log. A change of the state has an action of its own,
// because it changes nothing else.
func changeAction(before, after *webhook.Endpoint) string {
	if before.State == after.State {
		return audit.EndpointUpdate
	}
	switch after.State {
	case webhook.EndpointActive:
		return audit.EndpointResume
	case webhook.EndpointPaused:
		return audit.EndpointPause
	case webhook.EndpointDisabled:
		return audit.EndpointDisable
	}
	return audit.EndpointUpdate
}

// followChange writes the consequences of a change in its transaction: a new URL or state removes the failures, and
// a new state stops the release of what is held or begins it at the rate, and is an operational event.
func (s *Endpoints) followChange(ctx context.Context, tx pgx.Tx, before, after *webhook.Endpoint, rate int) error {
	if before.State == after.State && before.URL == after.URL {
		return nil
	}
	if err := postgres.Notify(ctx, tx, postgres.Change{Kind: postgres.ChangeMoved, ID: after.ID.String()}); err != nil {
		return err
	}
	if err := s.failures.Forget(ctx, tx, after.ID); err != nil {
		return err
	}
	switch {
	case before.State == after.State:
		return deliveries.HastenRelease(ctx, tx, after.ID)
	case after.State != webhook.EndpointActive:
		if err := deliveries.StopRelease(ctx, tx, after.ID); err != nil {
			return err
		}
	default:
		if err := deliveries.BeginRelease(ctx, tx, s.core.Now(), after.TenantID, after.ID, rate); err != nil {
			return err
		}
	}
	return s.events.NoteState(ctx, tx, after)
}

// writeEndpoint writes e to the locked row that before was read from. Headers and credentials that have not changed are
// not encrypted again.
func (s *Endpoints) writeEndpoint(ctx context.Context, tx pgx.Tx, row *endpointRow, before, e *webhook.Endpoint) (err error) {
	headers, auth := row.headers, row.auth
	if !maps.Equal(before.Headers, e.Headers) {
		if headers, err = s.sealHeaders(ctx, e); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(before.Auth, e.Auth) || before.Certificate != e.Certificate {
		if auth, err = s.sealAuth(ctx, e); err != nil {
			return err
		}
	}
	err = tx.QueryRow(ctx, endpointUpdate, rowOf(e, headers, auth).written()...).Scan(&e.UpdatedAt)
	e.UpdatedAt = e.UpdatedAt.UTC()
	return err
}

// DeleteEndpoint deletes an endpoint: it cancels its open deliveries and removes its secrets, headers and credentials. The
// row stays, because deliveries name it.
func (s *Endpoints) DeleteEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID) error {
	err := s.changeEndpoint(ctx, s.core.OfTenant(tenantID), "delete", tenantID, id, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.remove(ctx, tx, tenantID, id, false); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, tenantID, audit.EndpointDelete, id.String(), nil)
	})
	if err != nil {
		return err
	}
	s.deliveries.CancelAfterDelete(ctx, tenantID, id)
	return nil
}

// remove deletes an endpoint in a transaction that has locked the tenant's row. CodeNotFound: there is none, or it is internal and not asked for as
// such, or the other way round.
func (s *Endpoints) remove(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID, internal bool) error {
	tag, err := tx.Exec(ctx, `
		update endpoints set deleted_at = now(), updated_at = now(), version = version + 1,
			headers_kek_id = null, headers_wrapped_key = null, headers_nonce = null, headers_ciphertext = null,
			auth_kek_id = null, auth_wrapped_key = null, auth_nonce = null, auth_ciphertext = null
		where id = $1 and tenant_id = $2 and deleted_at is null and internal = $3`, [16]byte(id), tenantID, internal)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return webhook.NotFound("endpoint")
	}
	if _, err := tx.Exec(ctx, `delete from endpoint_secrets where endpoint_id = $1`, [16]byte(id)); err != nil {
		return err
	}
	if err := s.failures.Forget(ctx, tx, id); err != nil {
		return err
	}
	return deliveries.ReleaseDeleted(ctx, tx, tenantID, id)
}

// changeEndpoint runs a change of an endpoint in one transaction with the next version of the tenant's endpoints and the
// notification of all processes. It always locks the tenant's row first, so that changes do not deadlock, and none is
// concurrent with DeleteTenant.
func (s *Endpoints) changeEndpoint(ctx context.Context, as postgres.Caller, verb, tenantID string, id webhook.EndpointID,
	fn func(ctx context.Context, tx pgx.Tx) error,
) error {
	c := postgres.Change{Kind: postgres.ChangeEndpoint, ID: id.String(), Tenant: tenantID}
	defer s.core.ChangedHere(c)
	unchanged := false
	err := as.InTx(ctx, verb+" endpoint "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update tenants set endpoints_version = endpoints_version + 1 where id = $1
			returning endpoints_version`, tenantID).Scan(&c.Version)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("endpoint")
		}
		if err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			unchanged = err == postgres.ErrUnchanged //nolint:errorlint // never wrapped
			return err
		}
		return postgres.Notify(ctx, tx, c)
	})
	if unchanged {
		return nil
	}
	return err
}
