-- +goose Up

-- The workflow in which the relay has started a delivery; '' for none. As long as that
-- workflow runs, the delivery needs no other one.
alter table outbox add column workflow_id text not null default '';
