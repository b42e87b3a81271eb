-- +goose Up
-- What an attempt waited for beyond its retry delay, '' for nothing; and how late it began, in milliseconds, null if it was not late.
alter table attempts
    add column waited_for text not null default '',
    add column late_ms    integer;
