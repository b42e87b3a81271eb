-- +goose Up

-- The endpoints of chat channels. They are hidden from the tenant's endpoints, and are changed with their channel only. The URL is a secret: it is
-- among the sealed credentials, and the column url has only its host.
alter table endpoints add column internal boolean not null default false;
-- Endpoints that are paused or disabled: a look for held deliveries that will be given up.
create index endpoints_stopped_by_id on endpoints (id) where state <> 0 and deleted_at is null;

-- Whom a tenant tells of changes of its endpoints. The owner is the tenant, or '' for the installation's own channels.
create table notification_settings (
    tenant_id  text        collate "C" references tenants (id) on delete cascade, -- null: the installation
    owner      text        collate "C" not null generated always as (coalesce(tenant_id, '')) stored primary key,
    version    bigint      not null default 1, -- increases with every change
    portal_url text        not null default '',
    digest_at  timestamptz not null default now() + interval '1 day' -- of the next digest of dead letters
);
create index notification_settings_digest on notification_settings (digest_at);

create table notification_channels (
    id            uuid        not null primary key,
    tenant_id     text        collate "C" references tenants (id) on delete cascade, -- null: the installation
    owner         text        collate "C" not null generated always as (coalesce(tenant_id, '')) stored,
    place         smallint    not null, -- in the list
    kind          smallint    not null, -- webhook.ChannelKind
    address       text        not null default '', -- of a mail channel
    endpoint_id   uuid        references endpoints (id) on delete cascade, -- of a chat; null: mail
    target_sha256 bytea       check (octet_length(target_sha256) = 32), -- of a chat's URL, to recognise it
    notices       integer     not null, -- webhook.Notices
    endpoint_ids  uuid[],               -- null: all
    state         smallint    not null, -- webhook.ChannelState
    refusals      smallint    not null default 0, -- of the mail server, in a row
    last_error    text        not null default '',
    last_error_at timestamptz,
    created_at    timestamptz not null default now(),
    constraint notification_channels_target check ((address = '') = (endpoint_id is not null) and (endpoint_id is null) = (target_sha256 is null))
);
create index notification_channels_owner on notification_channels (owner, place);
create index notification_channels_endpoint on notification_channels (endpoint_id) where endpoint_id is not null;

-- The key from which the tokens in the links of mails are derived, encrypted: no token is stored. The first process that sends a mail makes it.
create table notification_keys (
    id          uuid    not null primary key,
    single      boolean not null default true unique check (single), -- there is one row
    kek_id      text    not null,
    wrapped_key bytea   not null,
    nonce       bytea   not null,
    ciphertext  bytea   not null
);
create or replace view kek_uses as
    select kek_id, 'signing secrets' as what, count(*) as used from endpoint_secrets
    where expires_at is null or expires_at >= now() group by 1
    union all
    select headers_kek_id, 'headers', count(*) from endpoints where headers_kek_id is not null group by 1
    union all
    select auth_kek_id, 'credentials', count(*) from endpoints where auth_kek_id is not null group by 1
    union all
    select kek_id, 'links in mails', count(*) from notification_keys group by 1;

-- Changes of endpoints that people may have to be told of, written in the transaction of the change. A worker takes them within seconds.
create table notification_changes (
    id          uuid        not null primary key,
    tenant_id   text        collate "C" not null references tenants (id) on delete cascade,
    endpoint_id uuid        not null references endpoints (id) on delete cascade,
    state       smallint    not null, -- webhook.EndpointState
    summary     text        not null,
    at          timestamptz not null default now()
);

-- What was told last of an endpoint. A row lasts from the first notice of an endpoint until its recovery.
create table notification_told (
    endpoint_id uuid        not null primary key references endpoints (id) on delete cascade,
    told        smallint    not null, -- webhook.Told
    expiring_at timestamptz, -- when it was told that held deliveries will be given up; null: it was not
    at          timestamptz not null default now()
) with (fillfactor = 50);

-- Mails to be sent.
create table notification_mails (
    id           uuid        not null primary key,
    channel_id   uuid        not null references notification_channels (id) on delete cascade,
    notification jsonb,      -- webhook.Notification; null: the mail that asks for confirmation
    attempts     integer     not null default 0,
    next_at      timestamptz not null default now(),
    created_at   timestamptz not null default now()
);
create index notification_mails_due on notification_mails (next_at);
create index notification_mails_channel on notification_mails (channel_id);

-- Mails that asked for confirmation, of the last day: there is a limit for each address and each owner.
create table notification_confirmations (
    id             uuid        not null primary key,
    owner          text        collate "C" not null,
    address_sha256 bytea       not null,
    sent_at        timestamptz not null default now()
);
create index notification_confirmations_address on notification_confirmations (address_sha256, sent_at);
create index notification_confirmations_owner on notification_confirmations (owner, sent_at);
create index notification_confirmations_sent on notification_confirmations (sent_at);

grant select (internal) on endpoints to everpost_operator;
grant select, insert, update on notification_settings to everpost_api, everpost_operator;
grant select, update (digest_at) on notification_settings to everpost_worker;
grant select, insert, update, delete on notification_channels to everpost_api, everpost_operator;
grant select, update (state, refusals, last_error, last_error_at) on notification_channels to everpost_worker;
grant insert on notification_changes to everpost_api;
grant select, insert, update, delete on notification_changes, notification_told, notification_mails, notification_confirmations to everpost_worker;
grant select, insert on notification_mails to everpost_api, everpost_operator;
grant select on notification_confirmations to everpost_api, everpost_operator;
grant select on notification_keys to everpost_operator;
grant select, insert, update (kek_id, wrapped_key) on notification_keys to everpost_worker;

alter table notification_settings enable row level security;
alter table notification_channels enable row level security;
alter table notification_changes enable row level security;
alter table notification_told enable row level security;
alter table notification_mails enable row level security;
alter table notification_confirmations enable row level security;
alter table notification_keys enable row level security;
create policy every_owner on notification_keys to everpost_operator, everpost_worker using (true) with check (true);
create policy every_owner on notification_settings to everpost_operator, everpost_worker using (true) with check (true);
create policy every_owner on notification_channels to everpost_operator, everpost_worker using (true) with check (true);
create policy every_tenant on notification_changes to everpost_worker using (true) with check (true);
create policy every_tenant on notification_told to everpost_worker using (true) with check (true);
create policy every_owner on notification_mails to everpost_operator, everpost_worker using (true) with check (true);
create policy every_owner on notification_confirmations to everpost_operator, everpost_worker using (true) with check (true);
create policy one_tenant on notification_settings to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on notification_channels to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on notification_changes to everpost_api using (tenant_id = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on notification_confirmations to everpost_api using (owner = nullif(current_setting('everpost.tenant', true), ''));
create policy one_tenant on notification_mails to everpost_api using (
    exists (select from notification_channels c where c.id = channel_id and c.tenant_id = nullif(current_setting('everpost.tenant', true), '')));
