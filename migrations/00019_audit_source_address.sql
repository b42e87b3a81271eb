-- +goose Up

-- The address that the request came from; null for changes without an HTTP request, and for
-- entries older than this column.
alter table audit_log add column source_address inet;
