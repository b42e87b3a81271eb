-- +goose Up
-- What the turns of releases have let go and has not begun. They let no more go while there is much of it.
alter table outbox add column released boolean not null default false;
create index outbox_released on outbox (delivery_id) where released;
