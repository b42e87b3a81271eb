-- +goose Up

-- A held delivery is only a row: no workflow carries it, it has no time of its own, and its
-- release is a start and no command. One that was rescheduled waits for its time as others do.
update deliveries set command = 0 where command = 6;
update deliveries set state = case when run_attempts > 0 then 1 else 0 end, reason = '' where state = 2 and due_at is not null;
update deliveries set workflow_id = '' where state = 2 and workflow_id <> '';
