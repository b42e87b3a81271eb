-- +goose Up

-- When a mail channel was told something last; null for never. For a chat, its deliveries say it.
alter table notification_channels add column last_told_at timestamptz;

grant update (last_told_at) on notification_channels to everpost_worker;
