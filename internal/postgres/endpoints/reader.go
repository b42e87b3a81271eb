package endpoints

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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
			select `+endpointSelect+` from endpoints e where id = $1 and tenant_id = $2 and deleted_at is null and not internal`, [16]byte(id), tenantID)
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
	op := "list endpoints of " + tenantID
	scan := func(row pgx.CollectableRow) (endpointRow, error) { return scanEndpoint(row) }
	found, err := postgres.ReadList(ctx, s.core, s.core.OfTenant(tenantID), op, scan, `
		select `+endpointSelect+` from endpoints e
		where tenant_id = $1 and deleted_at is null and not internal and `+postgres.PageCondition+`
		order by id desc limit $3`, tenantID, p.After, p.Limit)
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

// readRoster reads all endpoints of a tenant that are not deleted, in any state, page by page and without their
// headers and credentials. Between the pages it holds no connection. CodeNotFound: there is no such tenant.
func (s Reader) readRoster(ctx context.Context, tenantID string) (*roster, error) {
	read := &roster{byFilter: map[string][]*webhook.Endpoint{}}
	head, rows, err := s.endpointsAfter(ctx, tenantID, webhook.EndpointID{})
	if err != nil {
		return nil, err
	}
	read.head = head
	read.apply(rows)
	if len(rows) < rosterPage {
		return read, nil
	}
	return read, s.readOn(ctx, tenantID, read)
}

// readOn reads the pages after the first, a few tenants' at a time, so that they leave connections to others.
func (s Reader) readOn(ctx context.Context, tenantID string, read *roster) error {
	select {
	case s.large <- struct{}{}:
	case <-ctx.Done():
		return postgres.Translate("read endpoints of "+tenantID, ctx.Err())
	}
	defer func() { <-s.large }()
	for more := true; more; {
		_, rows, err := s.endpointsAfter(ctx, tenantID, read.all[len(read.all)-1].ID)
		if err != nil {
			return err
		}
		read.apply(rows)
		more = len(rows) == rosterPage
	}
	// The pages are of several moments: what was changed since the first is read again.
	for after := read.head.version; ; {
		head, rows, err := s.endpointsSince(ctx, tenantID, after)
		if err != nil {
			return err
		}
		if !head.born.Equal(read.head.born) || !head.inherits(read.head) {
			return &webhook.Error{Code: webhook.CodeUnavailable, RetryAfter: time.Second, Message: "the tenant was changed meanwhile"}
		}
		read.apply(rows)
		if len(rows) < rosterPage {
			read.head = head
			return nil
		}
		after = rows[len(rows)-1].changed
	}
}

// largeRosters is how many tenants with more endpoints than a page are read at a time.
const largeRosters = 2

// endpointsAfter reads the next rosterPage endpoints of a tenant in the order of their ids. CodeNotFound: there is no such
// tenant.
func (s Reader) endpointsAfter(ctx context.Context, tenantID string, id webhook.EndpointID) (rosterHead, []rosterRow, error) {
	return s.rosterPage(ctx, tenantID, `e.deleted_at is null and e.id > $2 order by e.id`, [16]byte(id))
}

// endpointsSince reads the endpoints of a tenant that were changed or deleted after a version, at most rosterPage of them,
// in the order of their changes. CodeNotFound: there is no such tenant.
func (s Reader) endpointsSince(ctx context.Context, tenantID string, version int64) (rosterHead, []rosterRow, error) {
	return s.rosterPage(ctx, tenantID, `e.tenant_version > $2 order by e.tenant_version`, version)
}

// rosterPage reads a page of a tenant's endpoints and what belongs to all of them, in one snapshot.
func (s Reader) rosterPage(ctx context.Context, tenantID, which string, after any) (head rosterHead, rows []rosterRow, err error) {
	op := "read endpoints of " + tenantID
	err = s.core.OfTenant(tenantID).InSnapshot(ctx, op, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `select created_at, endpoints_version, retry_policy from tenants where id = $1`, tenantID).
			Scan(&head.born, &head.version, &head.policy)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("tenant")
		}
		if err != nil {
			return err
		}
		found, err := tx.Query(ctx, `
			select `+endpointUnsealed+`, e.tenant_version, e.deleted_at is not null from endpoints e
			where e.tenant_id = $1 and `+which+` limit `+strconv.Itoa(rosterPage), tenantID, after)
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (changed rosterRow, err error) {
			r, err := scanEndpoint(row, &changed.changed, &changed.deleted)
			changed.Endpoint = s.endpointOfRow(&r)
			return changed, err
		})
		return err
	})
	return head, rows, err
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
		where tenant_id = $1 and deleted_at is not null and not internal order by deleted_at desc limit $2`, tenantID, limit)
}
