-- +goose Up
-- The tenants take turns with their due releases.
create index releases_due_by_tenant on releases (lane, tenant_id, next_at) where next_at is not null;
drop index releases_due;
