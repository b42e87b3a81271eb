-- +goose Up

-- Whether the sender named the event's endpoints (endpoint_ids of the request): a replay
-- sends such an event to no others. Null means unknown: the event is older than this
-- column, or a process of the previous release stored it. A replay treats it as named,
-- unless it went to no endpoint because none matched.
alter table events add column targeted boolean;

-- Whether a replay of events includes types that the endpoint does not subscribe to.
alter table replays add column include_unmatched boolean not null default false;

-- The format of a request's body.
alter table endpoints add column payload_format smallint not null default 0; -- webhook.PayloadFormat
