-- +goose Up

-- No statement names a schema: all objects are created in the first schema of the
-- connection's search_path, and belong to the role that migrates.

-- Ids that a caller chooses, or that lists are ordered by, sort by bytes ("C") whatever the
-- database's locale, so that a cursor has the same meaning everywhere.
create table tenants (
    id                text        collate "C" not null primary key,
    name              text        not null,
    contact           text        not null default '',
    metadata          jsonb       not null default '{}',
    -- Increases with every change of the tenant's endpoints, in the same transaction. An
    -- event that was matched against an older version must be matched again.
    endpoints_version bigint      not null default 0,
    created_at        timestamptz not null default now(),
    updated_at        timestamptz not null default now()
) with (fillfactor = 80); -- room for the version: it changes in place

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

create table endpoints (
    id              uuid             not null primary key,
    tenant_id       text             collate "C" not null references tenants (id) on delete cascade,
    url             text             not null,
    event_types     text[]           not null,
    description     text             not null default '',
    state           smallint         not null default 0, -- webhook.EndpointState
    state_reason    text             not null default '',
    timeout_ns      bigint           not null,
    max_in_flight   integer          not null,
    rate_limit      double precision not null, -- requests per second
    retry_policy    jsonb            not null,
    circuit_breaker jsonb            not null,
    auto_disable    jsonb            not null,
    auto_replay     boolean          not null,
    signature       text             not null,
    metadata        jsonb            not null default '{}',

    -- The endpoint's own headers may contain credentials: a sealed JSON object, all four
    -- null when there are none.
    headers_kek_id      text,
    headers_wrapped_key bytea,
    headers_nonce       bytea,
    headers_ciphertext  bytea,

    version    bigint      not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- The row of a deleted endpoint stays, without secrets and headers, for the deliveries
    -- that refer to it.
    deleted_at timestamptz,
    constraint endpoints_headers check (num_nulls(headers_kek_id, headers_wrapped_key, headers_nonce, headers_ciphertext) in (0, 4))
);
create index endpoints_by_tenant on endpoints (tenant_id, id desc);

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

-- No foreign keys: entries outlive the rows that they refer to.
create table audit_log (
    id         uuid        not null primary key,
    at         timestamptz not null default now(),
    key_id     uuid,                  -- null: the system itself or the command line
    actor      text        not null,  -- the name shown when there is no key
    request_id text        not null,
    tenant_id  text        collate "C", -- null: of no tenant
    action     text        not null,  -- endpoint.create
    subject    text        not null,  -- the id of what was changed
    detail     jsonb       not null default '{}' -- names of what changed, never secrets
);
create index audit_log_by_tenant on audit_log (tenant_id, id desc);
