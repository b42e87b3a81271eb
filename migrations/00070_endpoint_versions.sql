-- +goose Up

-- The version of the tenant's endpoints (tenants.endpoints_version) with which an endpoint was last changed: processes read
-- what has changed since the version that they know. A change locks the tenant's row first and increases the version, so no
-- two changes of a tenant have the same. A trigger writes it, and operational below, because a process of the release before does not.
alter table endpoints add column tenant_version bigint not null default 0;

-- Whether the endpoint subscribes to operational events: these are few, and a change of an endpoint's state looks for them.
alter table endpoints add column operational boolean not null default false;
update endpoints set operational = true where exists (select from unnest(event_types) f where starts_with(f, 'everpost.'));
create index endpoints_operational on endpoints (tenant_id, id) where operational and deleted_at is null;

-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_stamp_endpoint() returns trigger
        language plpgsql set search_path = %I, pg_temp as $body$
        begin
            new.tenant_version := coalesce((select t.endpoints_version from tenants t where t.id = new.tenant_id), 0);
            new.operational := exists (select from unnest(new.event_types) f where starts_with(f, 'everpost.'));
            return new;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_stamp_endpoint() from public;

-- Every change of an endpoint sets updated_at. Encryption with another key does not, because it changes no endpoint.
create trigger endpoints_tenant_version before insert or update of updated_at on endpoints
    for each row execute function everpost_stamp_endpoint();

-- Not built concurrently: endpoints are few, and the table is locked for the column anyway.
create index endpoints_by_version on endpoints (tenant_id, tenant_version);
