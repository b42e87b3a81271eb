#!/bin/bash
# Run once by the postgres image, on an empty volume. Creates logins without superuser rights, the roles that Everpost uses
# (docs/security-database.md), and the databases.
set -euo pipefail

psql --no-psqlrc --set=ON_ERROR_STOP=1 --username=postgres \
	--set=product_password="$PRODUCT_DB_PASSWORD" --set=api_password="$API_DB_PASSWORD" --set=worker_password="$WORKER_DB_PASSWORD" \
	--set=temporal_password="$TEMPORAL_DB_PASSWORD" <<'SQL'
CREATE ROLE everpost LOGIN PASSWORD :'product_password';
CREATE ROLE everpost_ingest NOLOGIN NOINHERIT;
CREATE ROLE everpost_operator NOLOGIN NOINHERIT;
CREATE ROLE everpost_api NOLOGIN NOINHERIT;
CREATE ROLE everpost_worker NOLOGIN NOINHERIT;
GRANT everpost_ingest, everpost_operator TO everpost_api;
GRANT everpost_ingest TO everpost_worker;
CREATE ROLE everpost_api_login LOGIN PASSWORD :'api_password' IN ROLE everpost_api;
CREATE ROLE everpost_worker_login LOGIN PASSWORD :'worker_password' IN ROLE everpost_worker;
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE DATABASE everpost OWNER everpost;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE everpost, temporal, temporal_visibility FROM PUBLIC;
GRANT CONNECT ON DATABASE everpost TO everpost_api_login, everpost_worker_login;
SQL
