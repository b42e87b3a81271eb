-- +goose Up

-- Deletions of everything that is stored of a tenant, and their progress. Without everything the tenant's rows stay until
-- retention removes them.
alter table deleted_tenants
    add column everything    boolean     not null default false,
    add column removed_table text        not null default '', -- the last table that rows were removed from
    add column removed_rows  bigint      not null default 0,
    add column completed_at  timestamptz;                     -- of the removal of everything
grant update (everything, completed_at) on deleted_tenants to everpost_operator;
grant update (completed_at) on deleted_tenants to everpost_worker;

-- Removes up to so many rows of a tenant that is being deleted, from one table, and returns how many; 0 when none is left.
-- No role may delete all of these. Of the audit log the deletion itself stays.
--
-- What refers to the tenant's row or to its endpoints went with them, except what workers have observed of endpoints.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_erase_tenant(erased text, most integer) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            n bigint;
            step text;
        begin
            perform from deleted_tenants where id = erased and everything and not exists (select from tenants where id = erased);
            if not found then
                raise insufficient_privilege using message = 'not everything of this tenant is to be removed';
            end if;
            foreach step in array array['outbox', 'deliveries', 'events', 'idempotency_keys', 'statistics_minutes', 'statistics_hours',
                'audit_log'] loop
                case step
                when 'outbox' then
                    delete from outbox where delivery_id in (
                        select delivery_id from outbox where tenant_id = erased order by delivery_id desc limit most);
                when 'deliveries' then
                    with gone as (select id from deliveries where tenant_id = erased order by id desc limit most),
                    gone_attempts as (delete from attempts a using gone where a.delivery_id = gone.id)
                    delete from deliveries d using gone where d.id = gone.id;
                when 'events' then
                    with gone as (select id from events where tenant_id = erased order by id desc limit most)
                    delete from events e using gone where e.id = gone.id;
                when 'idempotency_keys' then
                    with gone as (select kind, key from idempotency_keys where tenant_id = erased order by kind, key limit most)
                    delete from idempotency_keys k using gone where k.tenant_id = erased and k.kind = gone.kind and k.key = gone.key;
                when 'statistics_minutes' then
                    with gone as (select endpoint_id, at from statistics_minutes where tenant_id = erased limit most)
                    delete from statistics_minutes s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                when 'statistics_hours' then
                    with gone as (select endpoint_id, at from statistics_hours where tenant_id = erased limit most)
                    delete from statistics_hours s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                when 'audit_log' then
                    delete from audit_log where id in (
                        select id from audit_log where tenant_id = erased and action <> 'tenant.delete' order by id desc limit most);
                end case;
                get diagnostics n = row_count;
                if n > 0 then
                    update deleted_tenants set removed_table = step, removed_rows = removed_rows + n where id = erased;
                    return n;
                end if;
            end loop;
            -- Not counted: a worker may write them again until it forgets the endpoint.
            delete from endpoint_health h where not exists (select from endpoints e where e.id = h.endpoint_id);
            return 0;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_erase_tenant(text, integer) from public;
grant execute on function everpost_erase_tenant(text, integer) to everpost_worker;
