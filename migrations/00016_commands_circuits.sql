-- +goose Up

-- How often the relay has signalled a command that no step has executed: each interval is
-- twice as long as the last (internal/postgres/deliveries/outbox_commands.go).
alter table deliveries add column command_signals integer not null default 0;

-- Circuits that were closed by hand. Each worker keeps its circuits in memory and reads
-- this table every second while one of them is open (docs/adr/0010, held deliveries). A row
-- is useless after that.
create table circuit_closings (
    endpoint_id uuid        not null primary key references endpoints (id) on delete cascade,
    closed_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50); -- it changes in place
grant select, insert, update on circuit_closings to everpost_api;
grant select on circuit_closings to everpost_worker;
alter table circuit_closings enable row level security;
create policy every_tenant on circuit_closings to everpost_worker using (true) with check (true);
create policy one_tenant on circuit_closings to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
