-- +goose Up

-- The retry policy of the tenant's endpoints without one of their own, null for none.
alter table tenants add column retry_policy jsonb;

-- Null: no policy of its own; the tenant's or the installation's applies.
alter table endpoints alter column retry_policy drop not null;

-- ambiguous_delays replaces ambiguous_attempts; a policy without it has the preset's. Until
-- this migration every endpoint had a policy, so one that equals the default was not a
-- deliberate choice: it now follows the tenant and the installation.
update endpoints set retry_policy = nullif(retry_policy - 'ambiguous_attempts', jsonb '{
    "preset": "default", "strategy": "exponential", "base": "10s", "factor": 3, "cap": "12h", "jitter": "equal",
    "max_attempts": 16, "give_up_after": "72h"}');
