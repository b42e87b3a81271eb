-- +goose Up
-- A release goes on where it was, whichever process makes its turns.
alter table releases
    add column after_id    uuid, -- what of the set, or of all if there is none, is up to this id has had its turn in this pass; null: nothing has
    add column later_id    uuid, -- as after_id, of what is after the set
    add column counted_to  uuid, -- total has what of the set is above this id; null: all of it
    add column set_next_at timestamptz, -- when the next ones of the set are to go
    add column running_at  timestamptz not null default now(); -- since when the set goes, for its pace
update releases set running_at = started_at, set_next_at = next_at,
    counted_to = case when total is null and state < 2 then until_id end,
    total = case when total is null and state < 2 and until_id is not null then 0 else total end;
