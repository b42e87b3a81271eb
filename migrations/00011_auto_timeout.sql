-- +goose Up

-- Whether the timeout follows the receiver's answers. timeout_ns is 15 s then, which is
-- what a process of the release before takes; where it is not, such a process has set a
-- timeout since, and that counts.
alter table endpoints add column timeout_auto boolean not null default false;
