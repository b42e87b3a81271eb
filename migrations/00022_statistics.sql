-- +goose Up

-- Statistics per endpoint: minutes, to which workers add every few seconds, and hours, which
-- retention sums up from them (internal/postgres/statistics). A row without an endpoint (all zeros)
-- has the total of a tenant, one without a tenant ('') that of the installation. Most counters of a
-- row are 0, which is stored as null. Both tables are partitioned by time, so that retention drops
-- whole partitions.

create table statistics_minutes (
    tenant_id   text        not null,
    endpoint_id uuid        not null,
    at          timestamptz not null,

    -- Attempts by webhook.OutcomeClass.
    attempt_delivered  integer,
    attempt_http_4xx   integer,
    attempt_http_5xx   integer,
    attempt_timeout    integer,
    attempt_connection integer,
    attempt_dns        integer,
    attempt_tls        integer,
    attempt_other      integer,
    first_attempts     integer,
    first_delivered    integer,

    -- Deliveries that ended, by state.
    ended_delivered     integer,
    ended_dead_lettered integer,
    ended_cancelled     integer,
    ended_discarded     integer,

    -- Attempts by latency: up to so many milliseconds, and more than those of the column before.
    latency_1     integer,
    latency_2     integer,
    latency_5     integer,
    latency_10    integer,
    latency_20    integer,
    latency_35    integer,
    latency_50    integer,
    latency_75    integer,
    latency_100   integer,
    latency_150   integer,
    latency_250   integer,
    latency_350   integer,
    latency_500   integer,
    latency_750   integer,
    latency_1000  integer,
    latency_1500  integer,
    latency_2500  integer,
    latency_5000  integer,
    latency_10000 integer,
    latency_15000 integer,
    latency_30000 integer,
    primary key (tenant_id, endpoint_id, at)
) partition by range (at);
create index statistics_minutes_by_time on statistics_minutes using brin (at);

create table statistics_hours (like statistics_minutes, primary key (tenant_id, endpoint_id, at)) partition by range (at);

create table statistics_minutes_default partition of statistics_minutes default;
create table statistics_hours_default partition of statistics_hours default;

-- The last flush of each worker: a flush that is written again counts once.
create table statistics_writers (
    writer     uuid        not null primary key,
    seq        bigint      not null,
    written_at timestamptz not null default now()
) with (fillfactor = 50); -- it changes in place

grant select on statistics_minutes, statistics_hours to everpost_api, everpost_operator;
grant select, insert, update, delete on statistics_minutes, statistics_hours, statistics_writers to everpost_worker;
grant select on statistics_minutes_default, statistics_hours_default to everpost_worker;

alter table statistics_minutes enable row level security;
alter table statistics_hours enable row level security;
alter table statistics_writers enable row level security;
create policy every_tenant on statistics_minutes to everpost_worker using (true) with check (true);
create policy every_tenant on statistics_hours to everpost_worker using (true) with check (true);
create policy every_tenant on statistics_writers to everpost_worker using (true) with check (true);
create policy one_tenant on statistics_minutes to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on statistics_hours to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy installation on statistics_minutes to everpost_operator using (tenant_id = '');
create policy installation on statistics_hours to everpost_operator using (tenant_id = '');

-- As everpost_make_partition (00009_roles.sql), for tables that are partitioned by time. The pages of
-- a partition keep room, because rows change in place.
--
-- +goose StatementBegin
do $functions$
begin
    execute format($create$
        create function everpost_make_statistics_partition(parent text, name text, low timestamptz, high timestamptz) returns void
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        begin
            if parent not in ('statistics_minutes', 'statistics_hours') or name !~ ('^' || parent || '_[0-9]{8}$') then
                raise insufficient_privilege using message = 'not a partition of ours: ' || name;
            end if;
            execute format('create table %%I (like %%I including all) with (fillfactor = 70)', name, parent);
            execute format('alter table %%I attach partition %%I for values from (%%L) to (%%L)', parent, name, low, high);
        end
        $body$
    $create$, current_schema());
    execute format($create$
        create or replace function everpost_drop_partitions(names text[]) returns void
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        begin
            if names is null or exists (select from unnest(names) n where n is null
                or n !~ '^(events|deliveries|attempts|statistics_minutes|statistics_hours)_[0-9]{8}$') then
                raise insufficient_privilege using message = 'not partitions of ours';
            end if;
            execute (select 'drop table if exists ' || string_agg(quote_ident(n), ', ' order by at) from unnest(names) with ordinality u (n, at));
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd
revoke all on function everpost_make_statistics_partition(text, text, timestamptz, timestamptz) from public;
grant execute on function everpost_make_statistics_partition(text, text, timestamptz, timestamptz) to everpost_worker;
