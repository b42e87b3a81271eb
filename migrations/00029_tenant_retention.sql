-- +goose Up

-- How long payloads, attempts and ended deliveries of a tenant are kept: webhook.Retention as JSON, {} for the installation's.
alter table tenants add column retention jsonb not null default '{}';
create index tenants_retention on tenants (id) where retention <> '{}';

-- The last run whose attempts were removed before the delivery.
alter table deliveries add column attempts_removed integer not null default 0;

-- What a tenant's retention has not removed yet. Most rows of a tenant are older than its retention, and without a trace of it.
create index deliveries_attempts_kept on deliveries (tenant_id, id) where state in (3, 5, 6) and attempts_removed < run;
create index events_payload_kept on events (tenant_id, id) where payload_removed_at is null;

-- Workers remove payloads through this function, which does nothing else: of events of tenants whose own retention of payloads
-- is set. low and high bound their ids. It returns how many it has removed.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_retain_payloads(retained uuid[], low uuid, high uuid) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            n bigint;
        begin
            update events e set payload = '', payload_sha256 = '', payload_removed_at = now(), payload_removed_reason = 'retention',
                removed_payload_size = octet_length(e.payload)
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
revoke all on function everpost_retain_payloads(uuid[], uuid, uuid) from public;
grant execute on function everpost_retain_payloads(uuid[], uuid, uuid) to everpost_worker;
