-- +goose Up

-- Where the request came from; null for what was not asked for over HTTP, and for the
-- entries of before.
alter table audit_log add column source_address inet;
