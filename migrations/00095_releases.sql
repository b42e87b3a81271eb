-- +goose Up

-- The release of the held deliveries of an endpoint, whatever holds them (docs/adr/0030, releases). One row for each endpoint that has or had
-- some. The process that owns the endpoint's lane releases them, in the order of their ids.
create table releases (
    endpoint_id uuid        not null primary key references endpoints (id) on delete cascade,
    tenant_id   text        collate "C" not null,
    lane        smallint    not null generated always as (get_byte(uuid_send(endpoint_id), 15) % 64) stored, -- webhook.LaneOf
    state       smallint    not null default 0, -- webhook.ReleaseState
    rate        integer,     -- deliveries per minute; null: Everpost's own pace
    until_id    uuid,        -- what a person has let go or stopped: the deliveries up to this id; null: nobody has, and all are released
    total       bigint,      -- how many those up to until_id are; null: not counted yet
    released    bigint      not null default 0,
    started_at  timestamptz not null default now(),
    next_at     timestamptz default now(), -- the next turn; null: there is nothing to do
    faulted_at  timestamptz  -- when an internal fault has held one last
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
create index releases_due on releases (lane, next_at) where next_at is not null;

grant select, insert, update on releases to everpost_api;
grant select, insert, update, delete on releases to everpost_worker;

alter table releases enable row level security;
create policy every_tenant on releases to everpost_worker using (true) with check (true);
create policy one_tenant on releases to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));

-- A turn looks for what is held of each endpoint that may be sent to, and ends the releases that have nothing to do: twenty a second, so that
-- this costs by endpoints, and not at once.
insert into releases (endpoint_id, tenant_id, next_at)
    select id, tenant_id, now() + row_number() over () / 20 * interval '1 second' from endpoints where state = 0 or deleted_at is not null;
delete from replays where source = 2; -- of held deliveries

-- Only on the parent, as in 00040_scale.sql.
create index deliveries_release on only deliveries (endpoint_id, id) where state = 2;
drop index deliveries_backlog;
