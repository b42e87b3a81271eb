-- +goose Up

-- Sets of deliveries that a workflow replays at a rate (docs/adr/0015, replays).
create table replays (
    id           uuid        not null primary key,
    tenant_id    text        collate "C" not null references tenants (id) on delete cascade,
    source       smallint    not null, -- webhook.ReplaySource
    endpoint_id  uuid, -- null: all of the tenant
    event_type   text        not null default '',
    reason       text        not null default '',
    status       integer     not null default 0,
    since        timestamptz,
    until        timestamptz,
    created_at   timestamptz not null, -- deliveries that ended later are not part of the set

    -- Deliveries per minute: requested, and current.
    asked        integer     not null,
    rate         integer     not null,
    ramp         boolean     not null,
    state        smallint    not null default 0, -- webhook.ReplayState
    state_reason text        not null default '',
    completed_at timestamptz,

    -- The progress. seq only increases: a step or batch is executed once.
    seq          bigint      not null default 0,
    cursor       uuid        not null, -- the last id that was processed; ids are processed in ascending order
    exhausted    boolean     not null default false,
    total        bigint, -- null: too many to count
    released     bigint      not null default 0,
    skipped      bigint      not null default 0,
    delivered    bigint      not null default 0,
    failed       bigint      not null default 0,

    -- The command that no step has executed yet; 0 for none.
    command      smallint    not null default 0, -- webhook.ReplayAction
    command_rate integer     not null default 0,
    command_id   bigint      not null default 0,

    started      boolean     not null default false, -- its workflow has started
    relay_at     timestamptz  -- the relay may signal or start its workflow from then on; null: no need
) with (fillfactor = 50); -- it changes in place, every second
create index replays_by_tenant on replays (tenant_id, id desc);
create index replays_relay on replays (relay_at) where relay_at is not null;

-- Deliveries that a replay has released and that have no first outcome yet. Rows live for
-- seconds, so the table is vacuumed early and often.
create table replay_releases (
    replay_id   uuid        not null references replays (id) on delete cascade,
    delivery_id uuid        not null,
    run         integer     not null,
    number      integer     not null, -- number of the expected attempt
    released_at timestamptz not null,
    check_at     timestamptz not null, -- when to check for it
    primary key (replay_id, delivery_id)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000);
create index replay_releases_check on replay_releases (replay_id, check_at);

-- For replays of held deliveries: there are few of them.
create index deliveries_held on deliveries (tenant_id, id) where state = 2;
