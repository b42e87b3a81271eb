-- +goose Up
-- What an event's requests have besides the payload, and what events are found by. Both are null for most events.
alter table events
    add column headers bytea, -- JSON object; not secret, but content as the payload is, and removed with it
    add column tags    text[];

-- Events with tags, with what the filters of a list need of them. Events without tags are not in it. Only on the parent, like
-- deliveries_retrying.
create index events_tagged on only events (tenant_id, id desc) include (tags, type, created_at) where tags is not null;

-- The response to a repeated request has the tags, but not the headers, which its sender knows.
create or replace view event_heads as
    select id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)) as payload_size,
        endpoint_ids, reason, created_at, deliver_at, tags from events;

-- +goose StatementBegin
do $functions$
begin
    -- As in 00001_schema.sql, and an erasure removes the headers and tags; of an event whose payload retention has removed, the tags.
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
                update events e set payload = '', payload_sha256 = '', headers = null, tags = null,
                    payload_removed_at = coalesce(e.payload_removed_at, now()),
                    payload_removed_reason = coalesce(e.payload_removed_reason, 'erased'),
                    removed_payload_size = coalesce(e.removed_payload_size, octet_length(e.payload))
                where e.id = any(erased_events) and e.tenant_id = tenant and (e.payload_removed_at is null or e.tags is not null)
                returning e.id;
        end
        $body$
    $create$, current_schema());

    -- As in 00001_schema.sql, and the headers are removed with the payload. The tags stay, as the type does.
    execute format($create$
        create or replace function everpost_retain_payloads(retained uuid[], low uuid, high uuid) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            n bigint;
        begin
            update events e set payload = '', payload_sha256 = '', payload_removed_at = now(), payload_removed_reason = 'retention',
                removed_payload_size = octet_length(e.payload), headers = null
            where e.id = any(retained) and e.id >= low and e.id < high and e.payload_removed_at is null
              and e.tenant_id = (select t.id from tenants t where t.id = e.tenant_id and t.retention ? 'payloads');
            get diagnostics n = row_count;
            return n;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
