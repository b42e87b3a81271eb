-- +goose Up

-- What the relay has taken from the outbox and nobody has begun since: none, when all is well,
-- however many deliveries a second there are. Replays wait while it is much (docs/adr/0014, Temporal outages).
create index outbox_taken on outbox (relay_at) where relayed > 0;
