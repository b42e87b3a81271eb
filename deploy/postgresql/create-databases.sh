#!/bin/bash
# Run once by the postgres image, on an empty volume: two roles that are nobody's superuser, and their databases.
set -euo pipefail

psql --no-psqlrc --set=ON_ERROR_STOP=1 --username=postgres \
	--set=product_password="$PRODUCT_DB_PASSWORD" --set=temporal_password="$TEMPORAL_DB_PASSWORD" <<'SQL'
CREATE ROLE everpost LOGIN PASSWORD :'product_password';
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE DATABASE everpost OWNER everpost;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE everpost, temporal, temporal_visibility FROM PUBLIC;
SQL
