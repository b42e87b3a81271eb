-- When a row was stored. created_at is the event's, which may be days old where a replay sends past events.
-- The default is the time of the migration for the rows that exist, without a rewrite of the table.

-- +goose Up
alter table outbox add column stored_at timestamptz not null default now();

-- +goose Down
alter table outbox drop column stored_at;
