-- +goose Up

-- The lists that people look at, in installations with many deliveries: those of an endpoint, open
-- ones, and cancelled and discarded ones (states 5 and 6). Only the first one costs a delivery that
-- succeeds at once anything.
create index deliveries_by_endpoint on deliveries (endpoint_id, id desc);
create index deliveries_undelivered_by_endpoint on deliveries (endpoint_id, id desc) where state <> 3;
create index deliveries_open_by_tenant on deliveries (tenant_id, id desc) where state < 3;
create index deliveries_withdrawn_by_tenant on deliveries (tenant_id, id desc) where state > 4;

-- Dead letters are few among many rows, each on a page of its own: what groups and searches of them
-- read is in the index.
drop index deliveries_dead;
create index deliveries_dead on deliveries (tenant_id, id desc) include (endpoint_id, reason, last_status, event_type, created_at) where state = 4;

create index endpoints_deleted on endpoints (tenant_id, deleted_at desc) where deleted_at is not null;
