-- +goose Up

-- Whether the timeout adapts to the receiver's latency. timeout_ns is 15 s then, which a
-- process of the previous release uses. Another value was set by such a process since, and
-- takes precedence.
alter table endpoints add column timeout_auto boolean not null default false;
