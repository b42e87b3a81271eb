-- +goose Up

-- The console's one-time links and its sessions (docs/adr/0024, console). Of both tokens only the SHA-256 is
-- stored. Each belongs to an API key and is valid only while that key is: key_sha256 is the key's hash. A key
-- that is preset by a setting has no row in api_keys, so there is no foreign key.
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

-- A session is looked up before it is known whose it is, so the operator's role does it.
grant select, insert, update (last_seen_at), delete on console_sessions to everpost_operator;
grant select, insert, delete on console_links to everpost_operator;
alter table console_links enable row level security;
alter table console_sessions enable row level security;
create policy every_tenant on console_links to everpost_operator using (true) with check (true);
create policy every_tenant on console_sessions to everpost_operator using (true) with check (true);

-- +goose Down
drop table console_sessions;
drop table console_links;
