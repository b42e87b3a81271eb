-- +goose Up

-- The machine of a process, or rather its network: only processes of the same one reach each other at loopback addresses. '' for processes
-- of a build that did not say.
alter table processes add column machine text not null default '';
