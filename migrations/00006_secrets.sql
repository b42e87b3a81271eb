-- +goose Up

-- The public key of the newest secret if that is an ed25519 key: receivers verify with it.
-- It is stored unsealed because it is public.
alter table endpoints add column public_key text not null default '';
