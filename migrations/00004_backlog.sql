-- +goose Up

-- For the release of what is held for one endpoint, oldest first. Only what is held is in it.
create index deliveries_backlog on deliveries (endpoint_id, id) where state = 2;
