-- +goose Up

-- The deliveries that wait for a retry, with what is counted of them. Only on the parent: partitions get it when they are made, and those
-- that there are already after the migrations, one by one and without locks against writers (partition_indexes.go).
create index deliveries_retrying on only deliveries (endpoint_id) include (run, created_at) where state = 1;

-- Analyzes a partitioned table: autovacuum only analyzes its partitions. It does nothing, and returns false, if that has been done within the
-- given time, or another process is doing it. It sleeps after what costs PostgreSQL a few milliseconds, so that it is in nobody's way.
--
-- Retention drops no day meanwhile, which would wait for its lock, and everybody else for retention.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_analyze(parent text, every interval) returns boolean
        language plpgsql security definer set search_path = %I, pg_temp set vacuum_cost_delay = 2 set vacuum_cost_limit = 1000 as $body$
        begin
            if parent not in ('events', 'deliveries', 'attempts', 'statistics_minutes', 'statistics_hours') then
                raise insufficient_privilege using message = 'not a table of ours: ' || parent;
            end if;
            if not pg_try_advisory_xact_lock(hashtextextended('everpost/analyze/' || current_schema(), 0)) then
                return false;
            end if;
            perform from pg_stat_all_tables where relid = to_regclass(parent) and last_analyze > now() - every;
            if found then
                return false;
            end if;
            execute format('analyze %%I', parent);
            return true;
        end
        $body$
    $create$, current_schema());

    -- As in 00001_schema.sql, but rows of deliveries and events are removed day by day: a join, or a list of ids of many days, reads the
    -- primary keys of all partitions for each row.
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
                    delete from outbox where delivery_id = any(array(
                        select delivery_id from outbox where tenant_id = erased order by delivery_id desc limit most));
                    get diagnostics n = row_count;
                when 'deliveries', 'events' then
                    n := everpost_erase_days(step, erased, most);
                when 'idempotency_keys' then
                    with gone as (select kind, key from idempotency_keys where tenant_id = erased order by kind, key limit most)
                    delete from idempotency_keys k using gone where k.tenant_id = erased and k.kind = gone.kind and k.key = gone.key;
                    get diagnostics n = row_count;
                when 'statistics_minutes' then
                    with gone as (select endpoint_id, at from statistics_minutes where tenant_id = erased limit most)
                    delete from statistics_minutes s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                    get diagnostics n = row_count;
                when 'statistics_hours' then
                    with gone as (select endpoint_id, at from statistics_hours where tenant_id = erased limit most)
                    delete from statistics_hours s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                    get diagnostics n = row_count;
                when 'audit_log' then
                    delete from audit_log where id in (
                        select id from audit_log where tenant_id = erased and action <> 'tenant.delete' order by id desc limit most);
                    get diagnostics n = row_count;
                end case;
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

    -- Removes the newest events, or deliveries with their attempts, of a tenant that is being deleted.
    execute format($create$
        create function everpost_erase_days(kind text, erased text, most integer) returns bigint
        language plpgsql set search_path = %I, pg_temp as $body$
        declare
            ids uuid[];
            of_day uuid[];
            low uuid;
            high uuid;
            n bigint := 0;
        begin
            if kind = 'events' then
                ids := array(select id from events where tenant_id = erased order by id desc limit most);
            else
                ids := array(select id from deliveries where tenant_id = erased order by id desc limit most);
            end if;
            n := cardinality(ids);
            while cardinality(ids) > 0 loop
                high := ids[1];
                -- The first id of its day: 48 bits of milliseconds, the rest zero.
                low := (lpad(to_hex((('x' || lpad(left(replace(high::text, '-', ''), 12), 16, '0'))::bit(64)::bigint / 86400000) * 86400000), 12, '0')
                    || repeat('0', 20))::uuid;
                of_day := array(select id from unnest(ids) id where id >= low);
                if kind = 'events' then
                    delete from events where id = any(of_day) and id >= low and id <= high;
                else
                    delete from attempts where delivery_id = any(of_day) and delivery_id >= low and delivery_id <= high;
                    delete from deliveries where id = any(of_day) and id >= low and id <= high;
                end if;
                ids := array(select id from unnest(ids) id where id < low order by id desc);
            end loop;
            return n;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_analyze(text, interval), everpost_erase_days(text, text, integer) from public;
grant execute on function everpost_analyze(text, interval) to everpost_worker;
