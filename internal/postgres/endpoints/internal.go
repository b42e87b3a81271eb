package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// ChangeInternal adds and removes internal endpoints of a tenant, then calls fn, all in one transaction. Those to be added have ids; each gets a
// signing secret of its own. CodeNotFound: there is no such tenant, or no such endpoint to remove. An error of fn is returned unchanged, and nothing
// is stored then.
func (s *Endpoints) ChangeInternal(ctx context.Context, tenantID string, added []webhook.Endpoint, removed []webhook.EndpointID,
	fn func(context.Context, pgx.Tx) error,
) error {
	const op = "change the endpoints of notification channels"
	sealed := make([]sealedParts, len(added))
	for i := range added { // before any lock: this may call a key management service
		secret, err := s.makeSecret(added[i].Signature)
		if err == nil {
			sealed[i], err = s.sealNew(ctx, &added[i], secret.Secret)
		}
		if err != nil {
			return postgres.Translate(op, err)
		}
	}
	var changes []postgres.Change
	defer func() {
		for _, c := range changes {
			s.core.ChangedHere(c)
		}
	}()
	err := s.core.OfTenant(tenantID).InTx(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if changes, err = s.applyInternal(ctx, tx, tenantID, added, sealed, removed); err != nil {
			return err
		}
		for _, c := range changes {
			if err := postgres.Notify(ctx, tx, c); err != nil {
				return err
			}
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	for _, id := range removed {
		s.deliveries.CancelAfterDelete(ctx, tenantID, id)
	}
	return nil
}

// applyInternal makes the rows, and returns what has changed.
func (s *Endpoints) applyInternal(
	ctx context.Context, tx pgx.Tx, tenantID string, added []webhook.Endpoint, sealed []sealedParts, removed []webhook.EndpointID,
) (changes []postgres.Change, err error) {
	var version int64
	err = tx.QueryRow(ctx, `
		update tenants set endpoints_version = endpoints_version + 1 where id = $1 returning endpoints_version`, tenantID).Scan(&version)
	if postgres.IsNoRows(err) {
		return nil, webhook.NotFound("tenant")
	}
	if err != nil {
		return nil, err
	}
	changed := func(id webhook.EndpointID) {
		changes = append(changes, postgres.Change{Kind: postgres.ChangeEndpoint, ID: id.String(), Tenant: tenantID, Version: version})
	}
	for i := range added {
		if err := s.addInternal(ctx, tx, &added[i], sealed[i]); err != nil {
			return nil, err
		}
		changed(added[i].ID)
	}
	for _, id := range removed {
		if err := s.remove(ctx, tx, tenantID, id, true); err != nil {
			return nil, err
		}
		changed(id)
	}
	return changes, nil
}

func (s *Endpoints) addInternal(ctx context.Context, tx pgx.Tx, e *webhook.Endpoint, sealed sealedParts) error {
	e.Version = 1
	row := rowOf(e, sealed.headers, sealed.auth)
	if _, err := tx.Exec(ctx, endpointInsertOnly, row.written()...); err != nil {
		return err
	}
	return insertSealed(ctx, tx, e.ID, 1, sealed.secret)
}
