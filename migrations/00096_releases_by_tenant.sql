-- +goose Up
-- The tenants take turns with their due releases.
create index releases_due_by_tenant on releases (lane, tenant_id, next_at) where next_at is not null;
drop index releases_due;

-- A release goes on where it was, whichever process makes its turns.
alter table releases
    add column from_id       uuid not null default '00000000-0000-0000-0000-000000000000', -- nothing of the set, or of all, below this id is held
    add column after_id      uuid, -- what of the set, or of all if there is none, is up to this id has had its turn in this pass; null: nothing has
    add column later_from_id uuid not null default '00000000-0000-0000-0000-000000000000', -- as from_id, of what is after the set
    add column later_id      uuid, -- as after_id, of what is after the set
    add column counted_to    uuid, -- total has what of the set is above this id; null: all of it
    add column set_next_at   timestamptz, -- when the next ones of the set are to go
    add column running_at    timestamptz not null default now(); -- since when the set goes, for its pace
update releases set running_at = started_at, set_next_at = next_at,
    counted_to = case when total is null and state < 2 then until_id end,
    total = case when total is null and state < 2 and until_id is not null then 0 else total end;

-- What the turns of releases have let go and has not begun. They let no more go while there is much of it.
alter table outbox add column released boolean not null default false;
create index outbox_released on outbox (delivery_id) where released and relayed = 0;

-- Held deliveries by their give-up time, and those of a tenant, which take turns when many are to be given up. Only on the parent, as in
-- 00095_releases.sql.
create index deliveries_held_until on only deliveries (give_up_at) where state = 2;
create index deliveries_held_until_by_tenant on only deliveries (tenant_id, give_up_at) where state = 2;

-- Analyzes the partition of a day if that has grown eightfold since it was analyzed, from 256 KiB on, and returns whether it has. A plan that was
-- made while a partition was empty is kept until that is analyzed, and takes any index; autovacuum comes up to a minute after the first rows, and then
-- when a tenth of them are new.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_analyze_grown(parent text, day date) returns boolean
        language plpgsql security definer set search_path = %I, pg_temp set vacuum_cost_delay = 2 set vacuum_cost_limit = 1000 as $body$
        declare
            grown text;
        begin
            if parent not in ('events', 'deliveries', 'attempts') then
                raise insufficient_privilege using message = 'not a table of ours: ' || parent;
            end if;
            if not pg_try_advisory_xact_lock(hashtextextended('everpost/analyze-grown/' || current_schema(), 0)) then
                return false;
            end if;
            select relname into grown from pg_class c
                where c.oid = to_regclass(parent || '_' || to_char(day, 'YYYYMMDD'))
                    and pg_relation_size(c.oid) >= 8192::bigint * greatest(32, 8 * c.relpages);
            if grown is null then
                return false;
            end if;
            execute format('analyze (skip_locked) %%I', grown);
            return true;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_analyze_grown(text, date) from public;
grant execute on function everpost_analyze_grown(text, date) to everpost_worker;
