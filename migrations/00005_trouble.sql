-- +goose Up

-- Endpoints that only fail at present, for disabling them automatically (docs/adr/0016,
-- operational events). A dead letter inserts a row and a success deletes it, so there are
-- few rows.
create table endpoint_trouble (
    endpoint_id      uuid        not null primary key references endpoints (id) on delete cascade,
    since            timestamptz not null, -- the first failure since the last success
    permanent_streak integer     not null default 0,
    -- Dead letters of the last 24 h by minute: when, and how many.
    exhausted_at     timestamptz[] not null default '{}',
    exhausted        integer[]   not null default '{}',
    gone_at          timestamptz, -- when the receiver responded with 410
    last_reason      text        not null default ''
) with (fillfactor = 50); -- it changes in place
