-- +goose Up

-- Limits that an operator has set for the tenant: webhook.Limits as JSON, {} for none.
alter table tenants add column limits jsonb not null default '{}';
