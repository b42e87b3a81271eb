-- +goose Up

-- The key with which a key was made: it ends with that. Null: made on the command line, or with a key that is preset by a
-- setting. There is no foreign key, because that one has no row.
alter table api_keys add column made_by uuid;
create index api_keys_by_maker on api_keys (made_by);

-- The audit log outlives a tenant: its entries by 29 days, that of the deletion by two years.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create or replace function everpost_prune_audit_log(before timestamptz, below uuid, most integer) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            gone bigint;
        begin
            if before is null or before > now() - interval '29 days' then
                raise insufficient_privilege using message = 'the audit log is kept for 29 days at least';
            end if;
            delete from audit_log where id in (
                select id from audit_log a where a.id < below and a.at < before
                    and (a.action <> 'tenant.delete' or a.at < now() - interval '2 years')
                order by id limit most);
            get diagnostics gone = row_count;
            return gone;
        end
        $body$
    $create$, current_schema());

    execute format($create$
        create or replace function everpost_erase_tenant(erased text, most integer) returns bigint
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
                        select id from audit_log where tenant_id = erased and action <> 'tenant.delete'
                            and (select deleted_at from deleted_tenants where id = erased) < now() - interval '29 days'
                        order by id desc limit most);
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
