-- +goose Up

-- For the release of what is held for one endpoint, oldest first. Only what is held is in it.
create index deliveries_backlog on deliveries (endpoint_id, reason, id) where state = 2;

-- How each worker sees those of its endpoints that are not plainly well. A row is true
-- for seconds and of no use after a crash, so it is not written ahead.
create unlogged table endpoint_health (
    endpoint_id uuid        not null,
    worker      text        not null, -- the process, by the name its claims are made under
    seen_at     timestamptz not null,
    seen        jsonb       not null, -- webhook.Seen
    primary key (endpoint_id, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000); -- it changes in place, every few seconds
