-- +goose Up
-- Held deliveries by their give-up time, and those of a tenant, which take turns when many are to be given up. Only on the parent, as in
-- 00095_releases.sql.
create index deliveries_held_until on only deliveries (give_up_at) where state = 2;
create index deliveries_held_until_by_tenant on only deliveries (tenant_id, give_up_at) where state = 2;
