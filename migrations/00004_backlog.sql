-- +goose Up

-- For the release of an endpoint's held deliveries, oldest first. The index only contains
-- held ones.
create index deliveries_backlog on deliveries (endpoint_id, reason, id) where state = 2;

-- Each worker's view of those of its endpoints that are not entirely healthy. A row is valid
-- for seconds and useless after a crash, so the table is unlogged.
create unlogged table endpoint_health (
    endpoint_id uuid        not null,
    worker      text        not null, -- the process, by its name in claims
    seen_at     timestamptz not null,
    seen        jsonb       not null, -- webhook.Observation
    primary key (endpoint_id, worker)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000); -- it changes in place, every few seconds
