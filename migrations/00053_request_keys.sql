-- +goose Up

-- Requests with an Idempotency-Key, each written by the transaction of its change, and kept for 24 hours. Those that post events are in
-- idempotency_keys.
create table request_keys (
    id          bytea       not null primary key, -- SHA-256 of the scope and the key: see webhook.RequestKey
    tenant_id   text        collate "C" references tenants (id) on delete cascade, -- null: the installation
    body_sha256 bytea       not null,
    attempt     uuid        not null, -- distinguishes the request that has written the row from a repetition
    subject     text        not null default '', -- the id of what was changed, as in the audit log
    created_at  timestamptz not null default now(),
    status      smallint, -- of the answer; null: it is not stored yet, or no more
    answer      bytea,    -- encrypted if there is a kek_id: an answer with a secret
    kek_id      text,
    wrapped_key bytea,
    nonce       bytea
);
create index request_keys_by_age on request_keys (created_at);
create index request_keys_by_tenant on request_keys (tenant_id);
create index request_keys_sealed on request_keys (created_at) where kek_id is not null;

grant select, insert, update on request_keys to everpost_api, everpost_operator;
grant select, update, delete on request_keys to everpost_worker;

alter table request_keys enable row level security;
create policy every_tenant on request_keys to everpost_operator, everpost_worker using (true) with check (true);
create policy one_tenant on request_keys to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
