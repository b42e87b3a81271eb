-- +goose Up
-- Replays that have not ended, by state and tenant.
create index replays_open on replays (state, tenant_id, id) where state in (0, 1, 4);

-- Lets queued replays run (state 4 becomes 0) while fewer run than may: overall, and of each tenant its own limit, or per_tenant; 0 is none.
-- The tenant that has the fewest is next, and of a tenant the oldest. It returns how many it has let run; the relay starts their
-- workflows after relay_after milliseconds. Releases of held deliveries are never queued and do not count.
--
-- It reads the running replays, and a few rows for each tenant with queued ones, all by replays_open. The lock makes the counts exact.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_admit_replays(per_tenant integer, overall integer, relay_after bigint) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            room bigint;
            n bigint;
        begin
            perform pg_advisory_xact_lock(hashtextextended('everpost/running-replays/' || current_schema(), 0));
            room := overall - (select count(*) from replays where state = 0 and source <> 2);
            if room <= 0 then
                return 0;
            end if;
            with recursive waiting as (
                (select tenant_id from replays where state = 4 order by tenant_id limit 1)
                union all
                select (select r.tenant_id from replays r where r.state = 4 and r.tenant_id > w.tenant_id order by r.tenant_id limit 1)
                from waiting w where w.tenant_id is not null),
            next as materialized (
                select q.id, busy.n + q.place as turn
                from waiting w
                cross join lateral (
                    select coalesce(nullif((t.limits ->> 'running_replays')::bigint, 0), nullif(per_tenant, 0), overall) as most
                    from tenants t where t.id = w.tenant_id) own
                cross join lateral (select count(*) as n from replays r where r.state = 0 and r.tenant_id = w.tenant_id and r.source <> 2) busy
                cross join lateral (
                    select r.id, row_number() over (order by r.id) as place from replays r
                    where r.state = 4 and r.tenant_id = w.tenant_id order by r.id limit least(room, greatest(own.most - busy.n, 0))) q
                order by turn, q.id limit room)
            update replays set state = 0, started = false, relay_at = now() + relay_after * interval '1 millisecond'
            where id = any(array(
                select id from replays where id = any(array(select id from next)) and state = 4 for update skip locked));
            get diagnostics n = row_count;
            return n;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_admit_replays(integer, integer, bigint) from public;
grant execute on function everpost_admit_replays(integer, integer, bigint) to everpost_api, everpost_worker;
