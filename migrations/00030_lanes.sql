-- +goose Up

-- Processes that share the limits of endpoints with each other. One that is not seen in time has ended, or is out of reach.
create table processes (
    id          text        primary key,
    address     text        not null, -- where other processes reach it
    certificate bytea       not null, -- the SHA-256 hash of the certificate by which they know it
    leaving     boolean     not null, -- it stops, and takes no lanes
    seen_until  timestamptz not null
);

-- Leases. The owner of a lane admits the requests to the endpoints in it, for all processes. The epoch rises with each
-- new owner.
create table lanes (
    lane       smallint    primary key,
    owner      text,
    epoch      bigint      not null default 0,
    expires_at timestamptz not null default '-infinity'
);
insert into lanes (lane) select generate_series(0, 63);

alter table processes enable row level security;
alter table lanes enable row level security;
grant select, insert, update (leaving, seen_until), delete on processes to everpost_worker;
grant select, update (owner, epoch, expires_at) on lanes to everpost_worker;
create policy every_tenant on processes to everpost_worker using (true) with check (true);
create policy every_tenant on lanes to everpost_worker using (true) with check (true);
