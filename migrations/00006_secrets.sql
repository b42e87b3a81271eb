-- +goose Up

-- Of the newest secret when that is an ed25519 key: receivers verify with it. It is
-- public, so it is shown without opening the secret.
alter table endpoints add column public_key text not null default '';
