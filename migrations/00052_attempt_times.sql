-- +goose Up
-- Where the time of an attempt went, in microseconds; null for none, and for attempts of before.
alter table attempts
    add column names_us   integer,
    add column connect_us integer,
    add column tls_us     integer,
    add column wait_us    integer;
