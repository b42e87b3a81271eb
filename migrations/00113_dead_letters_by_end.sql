-- +goose Up
-- Dead letters by when they were given up, which may be days after they were created: what a tenant got within the last hour, without the messages to
-- its own chats, and what an endpoint has. Only on the parent, like deliveries_retrying.
create index deliveries_dead_by_end on only deliveries (tenant_id, completed_at desc) where state = 4 and event_type <> 'everpost.notification';
create index deliveries_dead_of_endpoint on only deliveries (endpoint_id, completed_at desc) where state = 4;
