-- +goose Up
-- The catalogue of event types, which belongs to the installation: operators write it, everyone reads it.
create table event_types (
    name         text        collate "C" not null primary key,
    description  text        not null default '',
    type_group   text        collate "C" not null default '',
    state        smallint    not null default 0, -- webhook.EventTypeState
    replaced_by  text        collate "C" not null default '',
    validation   smallint    not null default 0, -- webhook.Validation
    ordering_key text        not null default '', -- a JSON pointer into the payload
    revision     bigint      not null default 1,  -- increases with every change
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now()
);

-- Type json keeps the text, as jsonb would not.
create table event_type_versions (
    type     text     collate "C" not null references event_types (name) on delete cascade,
    version  smallint not null,
    schema   json,
    examples json     not null default '[]', -- an array of payloads
    primary key (type, version)
);

grant select on event_types, event_type_versions to everpost_api, everpost_operator, everpost_worker;
grant insert, update, delete on event_types, event_type_versions to everpost_operator;
alter table event_types enable row level security;
alter table event_type_versions enable row level security;
create policy every_type on event_types for select to everpost_api, everpost_worker using (true);
create policy every_type on event_type_versions for select to everpost_api, everpost_worker using (true);
create policy change_types on event_types to everpost_operator using (true) with check (true);
create policy change_types on event_type_versions to everpost_operator using (true) with check (true);

-- The version that the sender named, and the first mismatch of the payload with the schema: names of the schema, and nothing of the payload.
alter table events
    add column type_version smallint,
    add column schema_error text;
create or replace view event_heads as
    select id, tenant_id, type, external_id, coalesce(removed_payload_size, octet_length(payload)) as payload_size,
        endpoint_ids, reason, created_at, deliver_at, tags, type_version, schema_error from events;
