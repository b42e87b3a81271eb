-- +goose Up

-- Events, deliveries and attempts are partitioned by day on the time inside the id (UUIDv7:
-- the first 48 bits are milliseconds), so that retention drops whole partitions. There are
-- no foreign keys between them: they would prevent the drop. internal/postgres creates the
-- partitions.

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
-- Payloads are not queried and often do not compress: store them uncompressed.
alter table events alter column payload set storage external;

create table deliveries (
    id             uuid        not null primary key,
    event_id       uuid        not null,
    endpoint_id    uuid        not null,
    tenant_id      text        not null,
    event_type     text        not null,
    created_at     timestamptz not null,

    -- The delivery's status. (run, seq) only increases: older updates are ignored.
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

    -- The claim: which process may make the next attempt, and until when.
    owner          uuid,
    owner_until    timestamptz,

    -- The command that no step has executed yet; 0 for none.
    command        smallint    not null default 0, -- webhook.Command
    command_id     bigint      not null default 0,
    command_reason text        not null default '',
    command_at     timestamptz, -- reschedule: to when
    commanded_at   timestamptz, -- when the command was given

    reconciled_at  timestamptz  -- when the reconciler last checked its workflow
) partition by range (id);
create index deliveries_by_tenant on deliveries (tenant_id, id desc);
create index deliveries_open on deliveries (endpoint_id, due_at) where state < 3;
create index deliveries_dead on deliveries (tenant_id, id desc) where state = 4;
-- The time by which an open delivery should have made progress: see
-- internal/postgres/deliveries/overdue.go.
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
    -- Data from outside is stored as bytes: a NUL in it would be invalid in text or jsonb
    -- and fail the whole batch.
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
    relay_at    timestamptz not null, -- the relay may take the row from then on
    relayed     integer     not null default 0 -- how often the relay has taken it
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000);
create index outbox_relay on outbox (relay_at);
create index outbox_by_tenant on outbox (tenant_id, delivery_id desc);

-- Values that must be unique across days. kind: 1 an event's external_id, 2 an
-- Idempotency-Key.
create table idempotency_keys (
    tenant_id   text        not null,
    kind        smallint    not null,
    key         text        not null,
    body_sha256 bytea       not null,
    event_id    uuid        not null,
    event_ids   uuid[],     -- the event ids of a batch with an Idempotency-Key, in order; event_id is the first
    created_at  timestamptz not null,
    primary key (tenant_id, kind, key)
);
create index idempotency_keys_by_age on idempotency_keys (kind, created_at);
