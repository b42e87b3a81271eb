-- +goose Up

-- The credentials of the endpoint's requests, besides its own headers: a sealed JSON
-- object, all four null when there are none.
alter table endpoints
    add column auth_kek_id      text,
    add column auth_wrapped_key bytea,
    add column auth_nonce       bytea,
    add column auth_ciphertext  bytea,
    add constraint endpoints_auth check (num_nulls(auth_kek_id, auth_wrapped_key, auth_nonce, auth_ciphertext) in (0, 4));
