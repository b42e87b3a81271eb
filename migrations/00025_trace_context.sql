-- +goose Up

-- Whether requests to the endpoint have a traceparent header (W3C Trace Context).
alter table endpoints add column trace_context boolean not null default false;
