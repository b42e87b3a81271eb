-- +goose Up
-- What the deliveries of an endpoint are numbered by: webhook.OrderingBy.
alter table endpoints add column ordering_by smallint not null default 0;

-- The key of events that belong together, as the sender gave it or the catalogue found it. It is content, as the payload is, and an erasure removes it.
-- Of each of endpoint_ids, the line that its delivery belongs to and the number there, 0 for none; null if none of them is numbered.
alter table events
    add column ordering_key text,
    add column line_ids     bigint[],
    add column line_numbers bigint[];

-- The response to a repeated request has them.
create or replace view event_heads as
    select id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)) as payload_size,
        endpoint_ids, reason, created_at, deliver_at, tags, type_version, schema_error, ordering_key, line_ids, line_numbers from events;

-- A line is what an endpoint gets with one ordering key. The row has its last number, and is locked from when a number is taken until the commit, so that the
-- numbers are in the order of the commits. No index has a column that changes with each number. Old lines go by their day.
create table lines (
    endpoint_id uuid   not null,
    key         uuid   not null, -- 128 bits of the SHA-256 of the ordering key
    tenant_id   text   collate "C" not null,
    id          bigint not null, -- when the line began, in microseconds: a line that was removed and begins again has a higher one
    last_number bigint not null,
    used_on     date   not null,
    primary key (endpoint_id, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create index lines_idle on lines (used_on);
create index lines_of_tenant on lines (tenant_id);

grant select, insert, update on lines to everpost_ingest;
grant select, delete, update (used_on) on lines to everpost_worker; -- update only to lock
alter table lines enable row level security;
create policy every_tenant on lines to everpost_ingest using (true) with check (true);
create policy every_tenant_worked on lines to everpost_worker using (true) with check (true);

-- +goose StatementBegin
do $functions$
begin
    -- As in 00104_event_headers_tags.sql, and an erasure removes the ordering key.
    execute format($create$
        create or replace function everpost_erase_payloads(erased_events uuid[], erased_deliveries uuid[]) returns setof uuid
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            tenant constant text := nullif(current_setting('everpost.tenant', true), '');
        begin
            update attempts a set request_headers = '{}', response_headers = '{}', response_body = ''
            where a.delivery_id = any(erased_deliveries)
              and a.delivery_id = (select d.id from deliveries d where d.id = a.delivery_id and d.tenant_id = tenant);
            return query
                update events e set payload = '', payload_sha256 = '', headers = null, tags = null, ordering_key = null,
                    payload_removed_at = coalesce(e.payload_removed_at, now()),
                    payload_removed_reason = coalesce(e.payload_removed_reason, 'erased'),
                    removed_payload_size = coalesce(e.removed_payload_size, octet_length(e.payload))
                where e.id = any(erased_events) and e.tenant_id = tenant
                  and (e.payload_removed_at is null or e.tags is not null or e.ordering_key is not null)
                returning e.id;
        end
        $body$
    $create$, current_schema());

    -- As in 00060_keys_audit.sql, and lines.
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
            foreach step in array array['outbox', 'deliveries', 'events', 'idempotency_keys', 'lines', 'statistics_minutes', 'statistics_hours',
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
                when 'lines' then
                    with gone as (select endpoint_id, key from lines where tenant_id = erased limit most)
                    delete from lines l using gone where l.endpoint_id = gone.endpoint_id and l.key = gone.key;
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
