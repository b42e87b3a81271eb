-- +goose Up

-- What an operator has set for the tenant: webhook.Limits as JSON, {} for nothing.
alter table tenants add column limits jsonb not null default '{}';
