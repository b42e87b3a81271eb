-- +goose Up

-- Ids of deleted tenants, as long as any of their data exists: a new tenant with such an id
-- could read and replay the old tenant's data (internal/postgres/tenants/deleted.go). The
-- collation is that of events.tenant_id.
create table deleted_tenants (
    id         text        not null primary key,
    deleted_at timestamptz not null default now()
);
grant select, insert, update (deleted_at) on deleted_tenants to everpost_operator;
grant select, delete on deleted_tenants to everpost_worker;
alter table deleted_tenants enable row level security;
create policy every_tenant on deleted_tenants to everpost_operator, everpost_worker using (true) with check (true);

-- Tenants that were deleted before this migration: each deletion is in the audit log.
insert into deleted_tenants (id, deleted_at)
select a.tenant_id, max(a.at) from audit_log a
where a.action = 'tenant.delete' and not exists (select from tenants t where t.id = a.tenant_id)
group by 1;
