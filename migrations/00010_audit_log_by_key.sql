-- +goose Up

-- For the list of entries of one key, newest first.
create index audit_log_by_key on audit_log (key_id, id desc);
