-- +goose Up
-- Lists, groups and replays of what has ended, or was given up, since a time.
alter table replays add column ended_since timestamptz, add column ended_until timestamptz;

-- With when each was given up. Only on the parent, like deliveries_retrying.
create index deliveries_dead_letters on only deliveries (tenant_id, id desc)
    include (endpoint_id, reason, last_status, event_type, created_at, completed_at) where state = 4;
drop index deliveries_dead;
