-- +goose Up

-- Endpoints that only fail at present, for disabling them (docs/adr/0016, operational events). A row is made
-- by a dead letter and removed by a success, so there are few, and none while all is well.
create table endpoint_trouble (
    endpoint_id      uuid        not null primary key references endpoints (id) on delete cascade,
    since            timestamptz not null, -- the first failure: nothing was delivered since
    permanent_streak integer     not null default 0,
    -- Deliveries that were given up, in the minutes of the last 24 h: when, and how many.
    exhausted_at     timestamptz[] not null default '{}',
    exhausted        integer[]   not null default '{}',
    gone_at          timestamptz, -- the receiver answered 410
    last_reason      text        not null default ''
) with (fillfactor = 50); -- it changes in place
