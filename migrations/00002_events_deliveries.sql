-- +goose Up

-- Events, deliveries and attempts are partitioned by day on the time inside the
-- id (UUIDv7: the first 48 bits are milliseconds), so that retention drops whole
-- partitions. There are no foreign keys between them: they would block the drop.
-- The partitions themselves are made by internal/postgres.

create table events (
    id             uuid        not null primary key,
    tenant_id      text        not null,
    type           text        not null,
    external_id    text        not null default '',
    payload        bytea       not null,
    payload_sha256 bytea       not null,
    endpoint_ids   uuid[]      not null,
    reason         text        not null default '',
    created_at     timestamptz not null,
    deliver_at     timestamptz
) partition by range (id);
create index events_by_tenant on events (tenant_id, id desc);
create table events_default partition of events default;
-- Payloads are not looked into and often do not compress: do not try.
alter table events alter column payload set storage external;

create table deliveries (
    id             uuid        not null primary key,
    event_id       uuid        not null,
    endpoint_id    uuid        not null,
    tenant_id      text        not null,
    event_type     text        not null,
    created_at     timestamptz not null,

    -- Where it stands. (run, seq) only grows: see the upsert in internal/postgres/record.go.
    run            integer     not null,
    seq            integer     not null,
    state          smallint    not null, -- webhook.State
    reason         text        not null default '',
    attempts       integer     not null default 0,
    run_attempts   integer     not null default 0,
    ambiguous      integer     not null default 0,
    delay_ns       bigint      not null default 0,
    due_at         timestamptz,
    give_up_at     timestamptz not null,
    completed_at   timestamptz,
    last_error     text        not null default '',
    workflow_id    text        not null default '',

    -- The newest attempt in short, so that a list needs no join; null before the first.
    last_decision    smallint,
    last_reason      text,
    last_status      integer,
    last_latency_us  bigint,
    last_at          timestamptz,
    last_retry_after_ns bigint,

    -- Who may send the next attempt, and until when.
    owner          uuid,
    owner_until    timestamptz,

    -- What a person asked and no step has answered yet; 0 is nothing.
    command        smallint    not null default 0, -- webhook.Command
    command_id     bigint      not null default 0,
    command_reason text        not null default '',
    command_at     timestamptz, -- reschedule: to when
    commanded_at   timestamptz, -- when it was asked

    reconciled_at  timestamptz  -- when it was last asked whether its workflow lives
) partition by range (id);
create index deliveries_by_tenant on deliveries (tenant_id, id desc);
create index deliveries_open on deliveries (endpoint_id, due_at) where state < 3;
create index deliveries_dead on deliveries (tenant_id, id desc) where state = 4;
-- From when an open delivery should have gone on by itself: see internal/postgres/overdue.go.
create index deliveries_overdue on deliveries ((case when state = 2 then give_up_at else coalesce(due_at, owner_until, give_up_at) end)) where state < 3;
create index deliveries_expired on deliveries (completed_at) where state = 4;
create index deliveries_commanded on deliveries (commanded_at) where command <> 0;
create table deliveries_default partition of deliveries default;

create table attempts (
    delivery_id      uuid        not null,
    run              integer     not null,
    number           integer     not null,
    started_at       timestamptz not null,
    latency_us       bigint      not null,
    decision         smallint    not null, -- retry.Decision
    reason           text        not null,
    status           integer     not null,
    retry_after_ns   bigint      not null,
    error            text        not null,
    delay_ns         bigint      not null,
    delay_source     text        not null,
    nominal_ns       bigint      not null,
    truncated        boolean     not null,
    -- What came from outside is bytes: a NUL in it would make a text or jsonb
    -- value, and with it everyone's flush, fail.
    request_headers  bytea       not null, -- JSON object
    response_headers bytea       not null, -- JSON object of arrays
    response_body    bytea       not null,
    primary key (delivery_id, run, number)
) partition by range (delivery_id);
create table attempts_default partition of attempts default;

-- One small row per delivery without a first record (docs/adr/0003, store and engine). Rows live
-- for milliseconds, so the table is vacuumed early and often.
create table outbox (
    delivery_id uuid        not null primary key,
    event_id    uuid        not null,
    endpoint_id uuid        not null,
    tenant_id   text        not null,
    event_type  text        not null,
    run         integer     not null,
    created_at  timestamptz not null,
    not_before  timestamptz,
    give_up_at  timestamptz not null,
    relay_at    timestamptz not null, -- from when the relay may take it
    relayed     integer     not null default 0 -- how often it has
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000);
create index outbox_relay on outbox (relay_at);
create index outbox_by_tenant on outbox (tenant_id, delivery_id desc);

-- What must be unique across days. kind: 1 an event's external_id, 2 an Idempotency-Key.
create table idempotency_keys (
    tenant_id   text        not null,
    kind        smallint    not null,
    key         text        not null,
    body_sha256 bytea       not null,
    event_id    uuid        not null,
    event_ids   uuid[],     -- what the Idempotency-Key of a batch answers with, in order; event_id is the first
    created_at  timestamptz not null,
    primary key (tenant_id, kind, key)
);
create index idempotency_keys_by_age on idempotency_keys (kind, created_at);
