-- +goose Up

-- When an event's payload was removed before the event, and why; null while it is kept. The payload
-- and its SHA-256 are then empty, so a process of the previous release does not send it either.
alter table events
    add column payload_removed_at     timestamptz,
    add column payload_removed_reason text, -- webhook.PayloadErased
    add column removed_payload_size   integer;

-- The payload's size stays, because the response to a repeated request has it.
create or replace view event_heads as
    select id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)) as payload_size,
        endpoint_ids, reason, created_at, deliver_at from events;

-- No role may change a payload or an attempt. The API erases them through this function, which does nothing
-- else: the payloads of events of the transaction's tenant, and what attempts of its deliveries have stored of
-- requests and responses. It returns the events whose payload it has removed.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_erase_payloads(erased_events uuid[], erased_deliveries uuid[]) returns setof uuid
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            tenant constant text := nullif(current_setting('everpost.tenant', true), '');
        begin
            update attempts a set request_headers = '{}', response_headers = '{}', response_body = ''
            where a.delivery_id = any(erased_deliveries)
              and a.delivery_id = (select d.id from deliveries d where d.id = a.delivery_id and d.tenant_id = tenant);
            return query
                update events e set payload = '', payload_sha256 = '', payload_removed_at = now(), payload_removed_reason = 'erased',
                    removed_payload_size = octet_length(e.payload)
                where e.id = any(erased_events) and e.tenant_id = tenant and e.payload_removed_at is null
                returning e.id;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_erase_payloads(uuid[], uuid[]) from public;
grant execute on function everpost_erase_payloads(uuid[], uuid[]) to everpost_api;
