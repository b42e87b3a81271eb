-- +goose Up
-- Redirects that count as delivered, for receivers that answer so after they have accepted the event.
alter table endpoints add column success_statuses smallint[] not null default '{}';
