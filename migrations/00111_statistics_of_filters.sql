-- +goose Up
-- What the filters of endpoints did: events of a subscribed type that they matched, and that they kept out.
alter table statistics_minutes
    add column filter_matched integer,
    add column filtered integer;
alter table statistics_hours
    add column filter_matched integer,
    add column filtered integer;

-- A process that stores events counts what filters say of them, and has no other right to deliveries.
grant select, insert, update on statistics_minutes, statistics_writers to everpost_ingest;
create policy every_tenant_counted on statistics_minutes to everpost_ingest using (true) with check (true);
create policy every_writer_counted on statistics_writers to everpost_ingest using (true) with check (true);
