-- +goose Up

-- The schema, by area: roles, tenants, endpoints, events and deliveries, replays, statistics, processes; then the rights of
-- the roles, row-level security and functions.
--
-- No statement names a schema: all objects are created in the first schema of the connection's search_path, and belong to
-- the role that migrates.

-- Roles -------------------------------------------------------------------------------------------------------------------

-- Processes use group roles with the least privileges, and row-level security hides rows of other tenants: a second layer of
-- protection (docs/adr/0021, database roles; docs/security-database.md). The owner, which migrates, is not restricted.
--
-- Roles belong to the whole cluster. The migration creates missing roles. If the owner has no right to create roles, an
-- administrator must create them first.
--
-- +goose StatementBegin
do $roles$
declare
    -- The right to take a role (PostgreSQL 16 distinguishes it from membership).
    take constant text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
    by_hand constant text := 'create role everpost_ingest nologin noinherit; create role everpost_operator nologin noinherit; '
        'create role everpost_api nologin noinherit; create role everpost_worker nologin noinherit; '
        'grant everpost_ingest, everpost_operator to everpost_api; grant everpost_ingest to everpost_worker; ';
    name text;
    pair text[];
begin
    -- Other migrations in this database wait. One in another database may still create the roles first, which is fine.
    perform pg_advisory_xact_lock(hashtextextended('everpost/roles', 0));
    foreach name in array array['everpost_ingest', 'everpost_operator', 'everpost_api', 'everpost_worker'] loop
        begin
            if not exists (select from pg_roles where rolname = name) then
                execute format('create role %I nologin noinherit', name);
            end if;
        exception when duplicate_object or unique_violation or insufficient_privilege then null;
        end;
        if not exists (select from pg_roles where rolname = name) then
            raise insufficient_privilege using message = format(
                'the role %I may not make the roles that Everpost works in; have a superuser run, once, and migrate again:  %sgrant everpost_api, everpost_worker to %1$I;',
                current_user, by_hand);
        end if;
    end loop;
    foreach pair slice 1 in array array[
        ['everpost_api', 'everpost_ingest'], ['everpost_api', 'everpost_operator'], ['everpost_worker', 'everpost_ingest'],
        [current_user::text, 'everpost_api'], [current_user::text, 'everpost_worker']] loop
        begin
            if not pg_has_role(pair[1], pair[2], take) then
                execute format('grant %I to %I', pair[2], pair[1]);
            end if;
        exception when unique_violation or internal_error or insufficient_privilege then null;
        end;
        -- The owner's own memberships are optional: the operator decides about them.
        if pair[1] <> current_user and not pg_has_role(pair[1], pair[2], take) then
            raise insufficient_privilege using message = format(
                'the role %I may not grant %I to %I; have a superuser run, once, and migrate again:  grant %2$I to %3$I;', current_user, pair[2], pair[1]);
        end if;
    end loop;
    execute format('grant usage on schema %I to everpost_api, everpost_operator, everpost_ingest, everpost_worker', current_schema());
end
$roles$;
-- +goose StatementEnd

-- Tenants -----------------------------------------------------------------------------------------------------------------

-- Ids that a caller chooses, or that lists are ordered by, sort by bytes ("C") whatever the database's locale, so that a
-- cursor has the same meaning everywhere.
create table tenants (
    id                text        collate "C" not null primary key,
    name              text        not null,
    contact           text        not null default '',
    metadata          jsonb       not null default '{}',
    limits            jsonb       not null default '{}', -- that an operator has set: webhook.Limits, {} for none
    retry_policy      jsonb,                             -- of its endpoints without one of their own; null for none
    retention         jsonb       not null default '{}', -- webhook.Retention, {} for the installation's
    -- Increases with every change of the tenant's endpoints, in the same transaction. An event that was matched against an
    -- older version must be matched again.
    endpoints_version bigint      not null default 0,
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now()
) with (fillfactor = 80); -- room for the version: it changes in place
create index tenants_retention on tenants (id) where retention <> '{}';

-- Ids of deleted tenants, as long as any of their data exists: a new tenant with such an id could read and replay the old
-- tenant's data (internal/postgres/tenants/deleted.go). The collation is that of events.tenant_id.
create table deleted_tenants (
    id            text        not null primary key,
    deleted_at    timestamptz not null default now(),
    -- Whether everything is removed at once, and the progress. Otherwise the tenant's rows stay until retention removes them.
    everything    boolean     not null default false,
    removed_table text        not null default '', -- the last table that rows were removed from
    removed_rows  bigint      not null default 0,
    completed_at  timestamptz                      -- of the removal of everything
);

create table api_keys (
    id           uuid        not null primary key,
    tenant_id    text        collate "C" references tenants (id) on delete cascade, -- null: an operator's key
    scope        smallint    not null, -- webhook.Scope
    name         text        not null default '',
    sha256       bytea       not null,
    created_at   timestamptz not null,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    constraint api_keys_scope check ((tenant_id is null) = (scope = 3)), -- webhook.ScopeOperator
    constraint api_keys_sha256 check (octet_length(sha256) = 32)
);
create index api_keys_by_tenant on api_keys (tenant_id, id desc);

-- The console's one-time links and its sessions (docs/adr/0024, console). Of both tokens only the SHA-256 is stored. Each
-- belongs to an API key and is valid only while that key is: key_sha256 is the key's hash. A key that is preset by a setting
-- has no row in api_keys, so there is no foreign key.
create table console_links (
    sha256     bytea       not null primary key check (octet_length(sha256) = 32),
    id         uuid        not null,
    tenant_id  text        references tenants on delete cascade, -- null for a log-in of an operator
    key_id     uuid        not null,
    key_sha256 bytea       not null check (octet_length(key_sha256) = 32),
    access     smallint    not null,
    return_url text        not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz not null
);
create index console_links_expiry on console_links (expires_at);
create index console_links_tenant on console_links (tenant_id);

create table console_sessions (
    sha256       bytea       not null primary key check (octet_length(sha256) = 32),
    link_id      uuid, -- the link that opened it
    tenant_id    text        references tenants on delete cascade, -- null for an operator
    key_id       uuid        not null,
    key_sha256   bytea       not null check (octet_length(key_sha256) = 32),
    access       smallint    not null,
    return_url   text        not null default '',
    created_at   timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    expires_at   timestamptz not null
);
create index console_sessions_expiry on console_sessions (expires_at);
create index console_sessions_tenant on console_sessions (tenant_id);

-- No foreign keys: entries outlive the rows that they refer to.
create table audit_log (
    id             uuid        not null primary key,
    at             timestamptz not null default now(),
    key_id         uuid,                  -- null: the system itself or the command line
    actor          text        not null,  -- the name shown when there is no key
    source_address inet,                  -- that the request came from; null without an HTTP request
    request_id     text        not null,
    tenant_id      text        collate "C", -- null: of no tenant
    action         text        not null,  -- endpoint.create
    subject        text        not null,  -- the id of what was changed
    detail         jsonb       not null default '{}' -- names of what changed, never secrets
);
create index audit_log_by_tenant on audit_log (tenant_id, id desc);
create index audit_log_by_key on audit_log (key_id, id desc);

-- Endpoints ---------------------------------------------------------------------------------------------------------------

create table endpoints (
    id              uuid             not null primary key,
    tenant_id       text             collate "C" not null references tenants (id) on delete cascade,
    url             text             not null,
    event_types     text[]           not null,
    description     text             not null default '',
    state           smallint         not null default 0, -- webhook.EndpointState
    state_reason    text             not null default '',
    timeout_ns      bigint           not null,
    timeout_auto    boolean          not null default false, -- the timeout adapts to the receiver's latency; timeout_ns is 15 s then
    max_in_flight   integer          not null,
    rate_limit      double precision not null, -- requests per second
    retry_policy    jsonb,                     -- null: the tenant's or the installation's applies
    circuit_breaker jsonb            not null,
    auto_disable    jsonb            not null,
    auto_replay     boolean          not null,
    signature       text             not null,
    -- The public key of the newest secret if that is an ed25519 key: receivers verify with it. It is public, so it is stored
    -- unsealed.
    public_key      text             not null default '',
    payload_format  smallint         not null default 0,     -- of a request's body: webhook.PayloadFormat
    trace_context   boolean          not null default false, -- requests have a traceparent header (W3C Trace Context)
    metadata        jsonb            not null default '{}',

    -- The endpoint's own headers may contain credentials: a sealed JSON object, all four null when there are none.
    headers_kek_id      text,
    headers_wrapped_key bytea,
    headers_nonce       bytea,
    headers_ciphertext  bytea,

    -- The credentials of the endpoint's requests, besides its own headers: as these.
    auth_kek_id      text,
    auth_wrapped_key bytea,
    auth_nonce       bytea,
    auth_ciphertext  bytea,

    version    bigint      not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- The row of a deleted endpoint stays, without secrets and headers, for the deliveries that refer to it.
    deleted_at timestamptz,
    constraint endpoints_headers check (num_nulls(headers_kek_id, headers_wrapped_key, headers_nonce, headers_ciphertext) in (0, 4)),
    constraint endpoints_auth check (num_nulls(auth_kek_id, auth_wrapped_key, auth_nonce, auth_ciphertext) in (0, 4))
);
create index endpoints_by_tenant on endpoints (tenant_id, id desc);
create index endpoints_deleted on endpoints (tenant_id, deleted_at desc) where deleted_at is not null;

create table endpoint_secrets (
    endpoint_id uuid        not null references endpoints (id) on delete cascade,
    version     integer     not null, -- 1, and one more with each rotation; the highest is the newest
    kek_id      text        not null,
    wrapped_key bytea       not null,
    nonce       bytea       not null,
    ciphertext  bytea       not null,
    created_at  timestamptz not null default now(),
    expires_at  timestamptz, -- null: the one in force
    primary key (endpoint_id, version)
);

-- How many rows are sealed with which key, over all tenants: each process compares it with its keys when it starts. Expired
-- rows need no key.
create view kek_uses as
    select kek_id, 'signing secrets' as what, count(*) as used from endpoint_secrets
    where expires_at is null or expires_at >= now() group by 1
    union all
    select headers_kek_id, 'headers', count(*) from endpoints where headers_kek_id is not null group by 1
    union all
    select auth_kek_id, 'credentials', count(*) from endpoints where auth_kek_id is not null group by 1;

-- Each worker's view of those of its endpoints that are not entirely healthy. A row is valid for seconds and useless after a
-- crash, so the table is unlogged.
create unlogged table endpoint_health (
    endpoint_id uuid        not null,
    worker      text        not null, -- the process, by its name in claims
    seen_at     timestamptz not null,
    seen        jsonb       not null, -- webhook.Observation
    primary key (endpoint_id, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000); -- it changes in place, every few seconds

-- Endpoints that only fail at present, for disabling them automatically (docs/adr/0016, operational events). A dead letter
-- inserts a row and a success deletes it, so there are few rows.
create table endpoint_trouble (
    endpoint_id      uuid        not null primary key references endpoints (id) on delete cascade,
    since            timestamptz not null, -- the first failure since the last success
    permanent_streak integer     not null default 0,
    -- Dead letters of the last 24 h by minute: when, and how many.
    exhausted_at     timestamptz[] not null default '{}',
    exhausted        integer[]   not null default '{}',
    gone_at          timestamptz, -- when the receiver responded with 410
    last_reason      text        not null default ''
) with (fillfactor = 50); -- it changes in place

-- Circuits that were closed by hand. Each worker keeps its circuits in memory and reads this table every second while one of
-- them is open (docs/adr/0010, held deliveries). A row is useless after that.
create table circuit_closings (
    endpoint_id uuid        not null primary key references endpoints (id) on delete cascade,
    closed_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50); -- it changes in place

-- Events and deliveries ---------------------------------------------------------------------------------------------------

-- Events, deliveries and attempts are partitioned by day on the time inside the id (UUIDv7: the first 48 bits are
-- milliseconds), so that retention drops whole partitions. There are no foreign keys between them: they would prevent the
-- drop. internal/postgres creates the partitions.

create table events (
    id             uuid        not null primary key,
    tenant_id      text        not null,
    type           text        not null,
    external_id    text        not null default '',
    payload        bytea       not null,
    payload_sha256 bytea       not null,
    endpoint_ids   uuid[]      not null,
    -- Whether the sender named the event's endpoints (endpoint_ids of the request): a replay sends such an event to no
    -- others. Null counts as named, unless the event went to no endpoint because none matched.
    targeted       boolean,
    reason         text        not null default '',
    created_at     timestamptz not null,
    deliver_at     timestamptz,

    -- When the payload was removed before the event, and why; null while it is kept. The payload and its SHA-256 are empty
    -- then. The payload's size stays, because the response to a repeated request has it.
    payload_removed_at     timestamptz,
    payload_removed_reason text, -- webhook.PayloadErased
    removed_payload_size   integer
) partition by range (id);
create index events_by_tenant on events (tenant_id, id desc);
-- What a tenant's retention has not removed yet. Most rows of a tenant are older than its retention, and without a trace of
-- it. So is deliveries_attempts_kept.
create index events_payload_kept on events (tenant_id, id) where payload_removed_at is null;
create table events_default partition of events default;
-- Payloads are not queried and often do not compress: store them uncompressed.
alter table events alter column payload set storage external;

-- The response to a repeated request: all columns of an event but its payload.
create view event_heads as
    select id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)) as payload_size,
        endpoint_ids, reason, created_at, deliver_at from events;

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
    workflow_id    text        not null default '', -- '' for none: a held delivery is only a row

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
    command         smallint    not null default 0, -- webhook.Command
    command_id      bigint      not null default 0,
    command_reason  text        not null default '',
    command_at      timestamptz, -- reschedule: to when
    commanded_at    timestamptz, -- when the command was given
    -- How often the relay has signalled it: each interval is twice as long as the last
    -- (internal/postgres/deliveries/outbox_commands.go).
    command_signals integer     not null default 0,

    reconciled_at    timestamptz, -- when the reconciler last checked its workflow
    attempts_removed integer    not null default 0 -- the last run whose attempts were removed before the delivery
) partition by range (id);

-- Lists that people look at, in installations with many deliveries; open are the states below 3. Only the first two cost a
-- delivery that succeeds at once anything.
create index deliveries_by_tenant on deliveries (tenant_id, id desc);
create index deliveries_by_endpoint on deliveries (endpoint_id, id desc);
create index deliveries_undelivered_by_endpoint on deliveries (endpoint_id, id desc) where state <> 3;
create index deliveries_open_by_tenant on deliveries (tenant_id, id desc) where state < 3;
create index deliveries_withdrawn_by_tenant on deliveries (tenant_id, id desc) where state > 4; -- cancelled and discarded
-- Dead letters are few among many rows, each on a page of its own: what groups and searches of them read is in the index.
create index deliveries_dead on deliveries (tenant_id, id desc) include (endpoint_id, reason, last_status, event_type, created_at) where state = 4;

create index deliveries_open on deliveries (endpoint_id, due_at) where state < 3;
-- The time by which an open delivery should have made progress: see internal/postgres/deliveries/overdue.go.
create index deliveries_overdue on deliveries ((case when state = 2 then give_up_at else coalesce(due_at, owner_until, give_up_at) end)) where state < 3;
create index deliveries_commanded on deliveries (commanded_at) where command <> 0;
create index deliveries_held on deliveries (tenant_id, id) where state = 2;                -- for replays of held deliveries
create index deliveries_backlog on deliveries (endpoint_id, reason, id) where state = 2;   -- for their release, oldest first
create index deliveries_expired on deliveries (completed_at) where state = 4;
create index deliveries_attempts_kept on deliveries (tenant_id, id) where state in (3, 5, 6) and attempts_removed < run;
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
    -- Data from outside is stored as bytes: a NUL in it would be invalid in text or jsonb and fail the whole batch.
    request_headers  bytea       not null, -- JSON object
    response_headers bytea       not null, -- JSON object of arrays
    response_body    bytea       not null,
    primary key (delivery_id, run, number)
) partition by range (delivery_id);
create table attempts_default partition of attempts default;

-- One small row per delivery without a first record (docs/adr/0003, store and engine). Rows live for milliseconds, so the
-- table is vacuumed early and often.
create table outbox (
    delivery_id uuid        not null primary key,
    event_id    uuid        not null,
    endpoint_id uuid        not null,
    tenant_id   text        not null,
    event_type  text        not null,
    run         integer     not null,
    created_at  timestamptz not null, -- the event's, which may be days old where a replay sends past events
    stored_at   timestamptz not null default now(),
    not_before  timestamptz,
    give_up_at  timestamptz not null,
    relay_at    timestamptz not null, -- the relay may take the row from then on
    relayed     integer     not null default 0, -- how often the relay has taken it
    -- The workflow in which the relay has started the delivery; '' for none. As long as that workflow runs, the delivery
    -- needs no other one.
    workflow_id text        not null default ''
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000);
create index outbox_relay on outbox (relay_at);
-- Rows that the relay has taken and whose delivery has not started: none in normal operation, whatever the rate. Replays
-- pause while there are many (docs/adr/0014, Temporal outages).
create index outbox_taken on outbox (relay_at) where relayed > 0;
create index outbox_by_tenant on outbox (tenant_id, delivery_id desc);

-- Values that must be unique across days. kind: 1 an event's external_id, 2 an Idempotency-Key.
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

-- Replays -----------------------------------------------------------------------------------------------------------------

-- Sets of deliveries that a workflow replays at a rate (docs/adr/0015, replays).
create table replays (
    id                uuid        not null primary key,
    tenant_id         text        collate "C" not null references tenants (id) on delete cascade,
    source            smallint    not null, -- webhook.ReplaySource
    endpoint_id       uuid, -- null: all of the tenant
    event_type        text        not null default '',
    reason            text        not null default '',
    status            integer     not null default 0,
    since             timestamptz,
    until             timestamptz,
    include_unmatched boolean     not null default false, -- of events: also types that the endpoint does not subscribe to
    created_at        timestamptz not null, -- deliveries that ended later are not part of the set

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

-- Deliveries that a replay has released and that have no first outcome yet. Rows live for seconds, so the table is vacuumed
-- early and often.
create table replay_releases (
    replay_id   uuid        not null references replays (id) on delete cascade,
    delivery_id uuid        not null,
    run         integer     not null,
    number      integer     not null, -- number of the expected attempt
    released_at timestamptz not null,
    check_at    timestamptz not null, -- when to check for it
    primary key (replay_id, delivery_id)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 50000);
create index replay_releases_check on replay_releases (replay_id, check_at);

-- Statistics --------------------------------------------------------------------------------------------------------------

-- Statistics per endpoint: minutes, to which workers add every few seconds, and hours, which retention sums up from them
-- (internal/postgres/statistics). A row without an endpoint (all zeros) has the total of a tenant, one without a tenant ('')
-- that of the installation. Most counters of a row are 0, which is stored as null. Both tables are partitioned by time, so
-- that retention drops whole partitions.

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

-- Processes ---------------------------------------------------------------------------------------------------------------

-- Processes that share the limits of endpoints with each other, or forward new deliveries to those that do. One that is not
-- seen in time has ended, or is out of reach.
create table processes (
    id          text        primary key,
    address     text        not null, -- where other processes reach it; '' for an API, which owns no lanes and admits no requests
    certificate bytea       not null, -- the SHA-256 hash of the certificate by which they know it
    leaving     boolean     not null, -- it stops, and takes no lanes
    seen_until  timestamptz not null
);

-- Leases. The owner of a lane admits the requests to the endpoints in it, for all processes. The epoch rises with each new
-- owner.
create table lanes (
    lane       smallint    primary key,
    owner      text,
    epoch      bigint      not null default 0,
    expires_at timestamptz not null default '-infinity'
);
insert into lanes (lane) select generate_series(0, 63);

-- Rights ------------------------------------------------------------------------------------------------------------------

-- api: one tenant's own data. The transaction's setting selects the tenant.
grant select on everpost_schema_version to everpost_api;
grant select, update (endpoints_version) on tenants to everpost_api;
grant select, insert, update (revoked_at) on api_keys to everpost_api;
grant select, insert on audit_log to everpost_api;
grant select, insert, update on endpoints to everpost_api;
grant select, insert, update, delete on endpoint_secrets to everpost_api;
grant select on endpoint_health to everpost_api;
grant select, delete on endpoint_trouble to everpost_api;
grant select, insert, update on circuit_closings to everpost_api;
grant select, insert on events to everpost_api;
grant select, insert, update on deliveries, outbox to everpost_api;
grant select on attempts, idempotency_keys to everpost_api;
grant select, insert, update on replays to everpost_api;
grant select on statistics_minutes, statistics_hours to everpost_api;

-- operator: tenants, keys, log-ins and the audit log of all tenants; no payloads or deliveries.
grant select, insert, update, delete on tenants to everpost_operator;
grant select, insert, update (deleted_at, everything, completed_at) on deleted_tenants to everpost_operator;
grant select, insert, update (revoked_at, last_used_at) on api_keys to everpost_operator;
-- A session is looked up before it is known whose it is, so this role does it.
grant select, insert, delete on console_links to everpost_operator;
grant select, insert, update (last_seen_at), delete on console_sessions to everpost_operator;
grant select, insert on audit_log to everpost_operator;
grant select (id, tenant_id, deleted_at) on endpoints to everpost_operator;
grant select on kek_uses to everpost_operator;
grant select on statistics_minutes, statistics_hours to everpost_operator;
grant select on lanes to everpost_operator;
grant select, insert, update (leaving, seen_until), delete on processes to everpost_operator;

-- ingest: batched inserts of events of several tenants. It inserts, and reads no payload.
grant select (id, endpoints_version) on tenants to everpost_ingest;
grant insert on events, outbox to everpost_ingest;
grant select on event_heads to everpost_ingest;
grant select, insert, delete, update (event_id, event_ids) on idempotency_keys to everpost_ingest;

-- worker: deliveries of all tenants, retention, rewrapping; no API keys.
grant select on everpost_schema_version to everpost_worker;
grant select, update (endpoints_version) on tenants to everpost_worker;
grant select, update (completed_at), delete on deleted_tenants to everpost_worker;
grant insert on audit_log to everpost_worker;
grant select, update on endpoints to everpost_worker;
grant select, update (kek_id, wrapped_key), delete on endpoint_secrets to everpost_worker;
grant select on kek_uses to everpost_worker;
grant select, insert, update, delete on endpoint_trouble, endpoint_health to everpost_worker;
grant select on circuit_closings to everpost_worker;
grant select, insert, delete, update (reason) on events to everpost_worker; -- update: to lock rows
grant select, insert, update, delete on deliveries, outbox, replays, replay_releases to everpost_worker;
grant select, insert, delete on attempts to everpost_worker;
grant select, delete on idempotency_keys to everpost_worker;
grant select, insert, update, delete on statistics_minutes, statistics_hours, statistics_writers to everpost_worker;
grant select, insert, update (leaving, seen_until), delete on processes to everpost_worker;
grant select, update (owner, epoch, expires_at) on lanes to everpost_worker;
-- Tables that retention reads directly.
grant select on events_default, deliveries_default, attempts_default, statistics_minutes_default, statistics_hours_default to everpost_worker;

-- Row-level security ------------------------------------------------------------------------------------------------------

-- A role sees no rows of a table that has no policy for it.
alter table tenants enable row level security;
alter table deleted_tenants enable row level security;
alter table api_keys enable row level security;
alter table console_links enable row level security;
alter table console_sessions enable row level security;
alter table audit_log enable row level security;
alter table endpoints enable row level security;
alter table endpoint_secrets enable row level security;
alter table endpoint_health enable row level security;
alter table endpoint_trouble enable row level security;
alter table circuit_closings enable row level security;
alter table events enable row level security;
alter table deliveries enable row level security;
alter table attempts enable row level security;
alter table outbox enable row level security;
alter table idempotency_keys enable row level security;
alter table replays enable row level security;
alter table replay_releases enable row level security;
alter table statistics_minutes enable row level security;
alter table statistics_hours enable row level security;
alter table statistics_writers enable row level security;
alter table processes enable row level security;
alter table lanes enable row level security;

create policy every_tenant on tenants to everpost_operator, everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on deleted_tenants to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on api_keys to everpost_operator using (true) with check (true);
create policy every_tenant on console_links to everpost_operator using (true) with check (true);
create policy every_tenant on console_sessions to everpost_operator using (true) with check (true);
create policy every_tenant on audit_log to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on endpoints to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_secrets to everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_health to everpost_worker using (true) with check (true);
create policy every_tenant on endpoint_trouble to everpost_worker using (true) with check (true);
create policy every_tenant on circuit_closings to everpost_worker using (true) with check (true);
create policy every_tenant on events to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on deliveries to everpost_worker using (true) with check (true);
create policy every_tenant on attempts to everpost_worker using (true) with check (true);
create policy every_tenant on outbox to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on idempotency_keys to everpost_ingest, everpost_worker using (true) with check (true);
create policy every_tenant on replays to everpost_worker using (true) with check (true);
create policy every_tenant on replay_releases to everpost_worker using (true) with check (true);
create policy every_tenant on statistics_minutes to everpost_worker using (true) with check (true);
create policy every_tenant on statistics_hours to everpost_worker using (true) with check (true);
create policy every_tenant on statistics_writers to everpost_worker using (true) with check (true);
create policy every_tenant on processes to everpost_worker using (true) with check (true);
create policy every_tenant on lanes to everpost_worker using (true) with check (true);

create policy installation on statistics_minutes to everpost_operator using (tenant_id = '');
create policy installation on statistics_hours to everpost_operator using (tenant_id = '');

-- A process without an address is an API: it forwards new deliveries to the owners of lanes.
create policy every_lane on lanes for select to everpost_operator using (true);
create policy every_process on processes for select to everpost_operator using (true);
create policy add_api on processes for insert to everpost_operator with check (address = '');
create policy renew_api on processes for update to everpost_operator using (address = '') with check (address = '');
create policy remove_api on processes for delete to everpost_operator using (address = '');

-- After a transaction that set it, the setting is '' and not null.
create policy one_tenant on tenants to everpost_api using (id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on api_keys to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on audit_log to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on endpoints to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on events to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on deliveries to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on outbox to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on idempotency_keys to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on replays to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on statistics_minutes to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on statistics_hours to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
-- Access through the row that they belong to. This is a comparison because the planner may turn an EXISTS into a hash table
-- of all the tenant's rows.
create policy one_tenant on endpoint_secrets to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on endpoint_health to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on endpoint_trouble to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on circuit_closings to everpost_api using (
    endpoint_id = (select e.id from endpoints e where e.id = endpoint_id and e.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
create policy one_tenant on attempts to everpost_api using (
    delivery_id = (select d.id from deliveries d where d.id = delivery_id and d.tenant_id = nullif(current_setting('everpost.tenant', true), '')));

-- Functions ---------------------------------------------------------------------------------------------------------------

-- What no role may do by itself, but a role may do through a function that does nothing else. Each function runs with the
-- rights of its owner and in this schema, whatever the caller's search_path is.
--
-- +goose StatementBegin
do $functions$
begin
    -- Partitions belong to the owner, and no other role has rights on a single one: workers create and drop them.
    execute format($create$
        create function everpost_make_partition(parent text, name text, low uuid, high uuid) returns void
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        begin
            if parent not in ('events', 'deliveries', 'attempts') or name !~ ('^' || parent || '_[0-9]{8}$') then
                raise insufficient_privilege using message = 'not a partition of ours: ' || name;
            end if;
            execute format('create table %%I (like %%I including all)', name, parent);
            execute format('alter table %%I attach partition %%I for values from (%%L) to (%%L)', parent, name, low, high);
        end
        $body$
    $create$, current_schema());

    -- The pages of a partition keep room, because rows change in place.
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
        create function everpost_drop_partitions(names text[]) returns void
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

    -- The audit log belongs to the owner, like partitions: retention deletes its oldest entries, and never those of the last
    -- 29 days. below bounds the ids that are examined.
    execute format($create$
        create function everpost_prune_audit_log(before timestamptz, below uuid, most integer) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            gone bigint;
        begin
            if before is null or before > now() - interval '29 days' then
                raise insufficient_privilege using message = 'the audit log is kept for 29 days at least';
            end if;
            delete from audit_log where id in (
                select id from audit_log a where a.id < below and a.at < before order by id limit most);
            get diagnostics gone = row_count;
            return gone;
        end
        $body$
    $create$, current_schema());

    -- The API erases payloads of events of the transaction's tenant, and what attempts of its deliveries have stored of
    -- requests and responses. It returns the events whose payload it has removed.
    execute format($create$
        create function everpost_erase_payloads(erased_events uuid[], erased_deliveries uuid[]) returns setof uuid
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            tenant constant text := nullif(current_setting('everpost.tenant', true), '');
        begin
            update attempts a set request_headers = '{}', response_headers = '{}', response_body = ''
            where a.delivery_id = any(erased_deliveries)
              and a.delivery_id = (select d.id from deliveries d where d.id = a.delivery_id and d.tenant_id = tenant);
            return query
                update events e set payload = '', payload_sha256 = '', payload_removed_at = now(), payload_removed_reason = 'erased',
                    removed_payload_size = octet_length(e.payload)
                where e.id = any(erased_events) and e.tenant_id = tenant and e.payload_removed_at is null
                returning e.id;
        end
        $body$
    $create$, current_schema());

    -- Workers remove payloads of events of tenants whose own retention of payloads is set. low and high bound their ids. It
    -- returns how many it has removed.
    execute format($create$
        create function everpost_retain_payloads(retained uuid[], low uuid, high uuid) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            n bigint;
        begin
            update events e set payload = '', payload_sha256 = '', payload_removed_at = now(), payload_removed_reason = 'retention',
                removed_payload_size = octet_length(e.payload)
            where e.id = any(retained) and e.id >= low and e.id < high and e.payload_removed_at is null
              and e.tenant_id = (select t.id from tenants t where t.id = e.tenant_id and t.retention ? 'payloads');
            get diagnostics n = row_count;
            return n;
        end
        $body$
    $create$, current_schema());

    -- Removes up to so many rows of a tenant that is being deleted, from one table, and returns how many; 0 when none is
    -- left. Of the audit log the deletion itself stays. What refers to the tenant's row or to its endpoints went with them,
    -- except what workers have observed of endpoints.
    execute format($create$
        create function everpost_erase_tenant(erased text, most integer) returns bigint
        language plpgsql security definer set search_path = %I, pg_temp as $body$
        declare
            n bigint;
            step text;
        begin
            perform from deleted_tenants where id = erased and everything and not exists (select from tenants where id = erased);
            if not found then
                raise insufficient_privilege using message = 'not everything of this tenant is to be removed';
            end if;
            foreach step in array array['outbox', 'deliveries', 'events', 'idempotency_keys', 'statistics_minutes', 'statistics_hours',
                'audit_log'] loop
                case step
                when 'outbox' then
                    delete from outbox where delivery_id in (
                        select delivery_id from outbox where tenant_id = erased order by delivery_id desc limit most);
                when 'deliveries' then
                    with gone as (select id from deliveries where tenant_id = erased order by id desc limit most),
                    gone_attempts as (delete from attempts a using gone where a.delivery_id = gone.id)
                    delete from deliveries d using gone where d.id = gone.id;
                when 'events' then
                    with gone as (select id from events where tenant_id = erased order by id desc limit most)
                    delete from events e using gone where e.id = gone.id;
                when 'idempotency_keys' then
                    with gone as (select kind, key from idempotency_keys where tenant_id = erased order by kind, key limit most)
                    delete from idempotency_keys k using gone where k.tenant_id = erased and k.kind = gone.kind and k.key = gone.key;
                when 'statistics_minutes' then
                    with gone as (select endpoint_id, at from statistics_minutes where tenant_id = erased limit most)
                    delete from statistics_minutes s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                when 'statistics_hours' then
                    with gone as (select endpoint_id, at from statistics_hours where tenant_id = erased limit most)
                    delete from statistics_hours s using gone where s.tenant_id = erased and s.endpoint_id = gone.endpoint_id and s.at = gone.at;
                when 'audit_log' then
                    delete from audit_log where id in (
                        select id from audit_log where tenant_id = erased and action <> 'tenant.delete' order by id desc limit most);
                end case;
                get diagnostics n = row_count;
                if n > 0 then
                    update deleted_tenants set removed_table = step, removed_rows = removed_rows + n where id = erased;
                    return n;
                end if;
            end loop;
            -- Not counted: a worker may write them again until it forgets the endpoint.
            delete from endpoint_health h where not exists (select from endpoints e where e.id = h.endpoint_id);
            return 0;
        end
        $body$
    $create$, current_schema());
end
$functions$;
-- +goose StatementEnd

revoke all on function everpost_make_partition(text, text, uuid, uuid), everpost_make_statistics_partition(text, text, timestamptz, timestamptz),
    everpost_drop_partitions(text[]), everpost_prune_audit_log(timestamptz, uuid, integer), everpost_erase_payloads(uuid[], uuid[]),
    everpost_retain_payloads(uuid[], uuid, uuid), everpost_erase_tenant(text, integer) from public;
grant execute on function everpost_erase_payloads(uuid[], uuid[]) to everpost_api;
grant execute on function everpost_make_partition(text, text, uuid, uuid), everpost_make_statistics_partition(text, text, timestamptz, timestamptz),
    everpost_drop_partitions(text[]), everpost_prune_audit_log(timestamptz, uuid, integer), everpost_retain_payloads(uuid[], uuid, uuid),
    everpost_erase_tenant(text, integer) to everpost_worker;
