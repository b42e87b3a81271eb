-- +goose Up

-- The retry policy of a tenant's endpoints that have none of their own, null for none.
alter table tenants add column retry_policy jsonb;

-- Null is none of its own: the tenant's counts then, or the installation's.
alter table endpoints alter column retry_policy drop not null;

-- ambiguous_delays takes the place of ambiguous_attempts; a policy without it has the
-- preset's. What is then the default was never more than that, for until now every
-- endpoint had a policy: it follows its tenant and the installation from here on.
update endpoints set retry_policy = nullif(retry_policy - 'ambiguous_attempts', jsonb '{
    "preset": "default", "strategy": "exponential", "base": "10s", "factor": 3, "cap": "12h", "jitter": "equal",
    "max_attempts": 16, "give_up_after": "72h"}');
