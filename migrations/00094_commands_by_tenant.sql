-- +goose Up
-- Commands that no step has answered, by tenant, so that the relay signals them in turns. Only on the parent, like deliveries_retrying.
create index deliveries_commanded_by_tenant on only deliveries (tenant_id, commanded_at) include (id) where command <> 0;
drop index deliveries_commanded;
