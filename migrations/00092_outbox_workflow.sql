-- +goose Up
-- A delivery of a replay or a release has the workflow that it is to be a member of, and the relay takes all deliveries of a workflow
-- together. New deliveries have none until the relay takes them, so that they are not in outbox_by_workflow.
create index outbox_by_workflow on outbox (workflow_id) where workflow_id <> '';
drop index outbox_relay;
create index outbox_relay on outbox (relay_at, workflow_id);
