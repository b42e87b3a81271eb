package endpoints

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Endpoint reads one endpoint. CodeNotFound: the tenant has no endpoint with this id.
func (s Reader) Endpoint(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error) {
	row, err := s.endpointRow(ctx, tenantID, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	e, err := s.openEndpoint(ctx, &row)
	return e, postgres.Translate("read endpoint "+id.String(), err)
}

// Unsealed is Endpoint without its headers and credentials.
func (s Reader) Unsealed(ctx context.Context, tenantID string, id webhook.EndpointID) (webhook.Endpoint, error) {
	row, err := s.endpointRow(ctx, tenantID, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.endpointOfRow(&row), nil
}

// endpointRow reads the row of one endpoint.
func (s Reader) endpointRow(ctx context.Context, tenantID string, id webhook.EndpointID) (row endpointRow, err error) {
	err = s.core.OfTenant(tenantID).WithConn(ctx, "read endpoint "+id.String(), func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select `+endpointSelect+` from endpoints e where id = $1 and tenant_id = $2 and deleted_at is null`, [16]byte(id), tenantID)
		if err != nil {
			return err
		}
		row, err = collectEndpoint(rows)
		return err
	})
	return row, err
}

// ListEndpoints lists the endpoints of a tenant, newest first. One whose headers and credentials cannot be
// decrypted is listed without them.
func (s Reader) ListEndpoints(ctx context.Context, tenantID string, p webhook.Page) ([]webhook.Endpoint, error) {
	var found []endpointRow
	op := "list endpoints of " + tenantID
	err := s.core.OfTenant(tenantID).WithConn(ctx, op, func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select `+endpointSelect+` from endpoints e
			where tenant_id = $1 and deleted_at is null and `+postgres.PageCondition+`
			order by id desc limit $3`, tenantID, p.After, p.Limit)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (endpointRow, error) { return scanEndpoint(row) })
		return err
	})
	if err != nil {
		return nil, err
	}
	list := s.openSome(ctx, found)
	if err := ctx.Err(); err != nil {
		return nil, postgres.Translate(op, err)
	}
	return list, nil
}

// openSome decrypts endpoints, a few at a time. One that cannot be decrypted is returned without headers and
// credentials, and logged, so that it does not hide the others.
func (s Reader) openSome(ctx context.Context, rows []endpointRow) []webhook.Endpoint {
	list, errs := make([]webhook.Endpoint, len(rows)), make([]error, len(rows))
	var workers sync.WaitGroup
	var next atomic.Int64
	for range min(openAtATime, len(rows)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(rows)); i = next.Add(1) - 1 {
				if list[i], errs[i] = s.openEndpoint(ctx, &rows[i]); errs[i] != nil {
					list[i] = s.endpointOfRow(&rows[i])
				}
			}
		})
	}
	workers.Wait()
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 && ctx.Err() == nil {
		s.core.Log.WarnContext(ctx, "headers and credentials of endpoints cannot be opened; they are shown without",
			slog.String("tenant", list[at].TenantID), slog.String("first", list[at].ID.String()), slog.Any("error", errs[at]))
	}
	return list
}

// openAtATime bounds how many endpoints of a list are decrypted at a time.
const openAtATime = 8

// EndpointsOf reads all endpoints of a tenant that are not deleted, in any state, in the order of their ids and
// without their headers, and their version, in one snapshot. CodeNotFound: there is no such tenant.
func (s Reader) EndpointsOf(ctx context.Context, tenantID string) (endpoints []webhook.Endpoint, version int64, err error) {
	err = s.core.OfTenant(tenantID).InSnapshot(ctx, "read endpoints of "+tenantID, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `select endpoints_version from tenants where id = $1`, tenantID).Scan(&version)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("tenant")
		}
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `select `+endpointSelect+` from endpoints e where tenant_id = $1 and deleted_at is null order by id`, tenantID)
		if err != nil {
			return err
		}
		endpoints, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (webhook.Endpoint, error) {
			r, err := scanEndpoint(row)
			return s.endpointOfRow(&r), err
		})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return endpoints, version, nil
}

// DeletedEndpoints reads the endpoints of a tenant that were deleted last, newest first.
func (s Reader) DeletedEndpoints(ctx context.Context, tenantID string, limit int) ([]webhook.DeletedEndpoint, error) {
	scan := func(row pgx.CollectableRow) (webhook.DeletedEndpoint, error) {
		var (
			id [16]byte
			d  webhook.DeletedEndpoint
		)
		err := row.Scan(&id, &d.URL, &d.EventTypes, &d.DeletedAt)
		d.ID, d.DeletedAt = id, d.DeletedAt.UTC()
		return d, err
	}
	return postgres.QueryAll(ctx, s.core.OfTenant(tenantID), "read deleted endpoints of "+tenantID, scan, `
		select id, url, event_types, deleted_at from endpoints
		where tenant_id = $1 and deleted_at is not null order by deleted_at desc limit $2`, tenantID, limit)
}
