-- +goose Up
-- What a portal link permits and how its pages look: webhook.PortalOptions. Links and sessions of older processes have none.
alter table console_links add column portal jsonb not null default '{}';
alter table console_sessions add column portal jsonb not null default '{}';
