-- +goose Up
-- The workflow that keeps the dead letter of the run before: whoever starts this run tells it, so that it ends.
alter table outbox add column earlier text not null default '';
