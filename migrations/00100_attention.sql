-- +goose Up
-- What needs attention over all tenants. Operators see which endpoints are not entirely healthy, and how many dead letters a tenant got in
-- each minute, but neither the endpoints nor the deliveries: those they read as the tenant.
grant select (state, state_since) on endpoints to everpost_operator;
grant select (endpoint_id, seen_at) on endpoint_health to everpost_operator;
create policy every_tenant_seen on endpoint_health for select to everpost_operator using (true);
create policy totals on statistics_minutes for select to everpost_operator using (endpoint_id = '00000000-0000-0000-0000-000000000000');

-- Minutes in which a tenant got dead letters. They are few, and a row changes only with one. Only on the parent, like deliveries_retrying.
create index statistics_minutes_dead on only statistics_minutes (at)
    where endpoint_id = '00000000-0000-0000-0000-000000000000' and tenant_id <> '' and ended_dead_lettered > 0;
