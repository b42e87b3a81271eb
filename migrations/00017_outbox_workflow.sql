-- +goose Up

-- The workflow into which the relay has put a delivery; '' for none. As long as that
-- workflow lives, the delivery needs no other one.
alter table outbox add column workflow_id text not null default '';
