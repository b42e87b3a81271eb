-- +goose Up
-- What the filters of endpoints did: events of a subscribed type that they matched, and that they kept out.
alter table statistics_minutes
    add column filter_matched integer,
    add column filtered integer;
alter table statistics_hours
    add column filter_matched integer,
    add column filtered integer;
