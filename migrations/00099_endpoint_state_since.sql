-- +goose Up
-- Who paused, disabled or resumed an endpoint, and when. Not known of changes before this migration.
alter table endpoints add column state_since timestamptz, add column state_by text not null default '';

-- What is not active over all tenants, the newest change first.
create index endpoints_stopped on endpoints (state_since desc nulls last, id) where state <> 0 and deleted_at is null;
