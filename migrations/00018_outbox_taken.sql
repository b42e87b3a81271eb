-- +goose Up

-- Rows that the relay has taken from the outbox and whose delivery has not started: none in
-- normal operation, whatever the rate. Replays pause while there are many (docs/adr/0014,
-- Temporal outages).
create index outbox_taken on outbox (relay_at) where relayed > 0;
