-- +goose Up

-- Whether the sender named the endpoints that an event is for (endpoint_ids of the request):
-- a replay sends such an event to no others. Null is an event from before this column, or
-- from a process of the release before, of which it is not known: a replay takes it to have
-- named the endpoints that it went to, unless it went to none because none matched.
alter table events add column targeted boolean;

-- Whether a replay of events also takes types that the endpoint did not ask for.
alter table replays add column include_unmatched boolean not null default false;

-- What the body of a request is made of.
alter table endpoints add column payload_format smallint not null default 0; -- webhook.PayloadFormat
