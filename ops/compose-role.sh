#!/bin/sh
# Creates the service's database role when the database is new: docs/operate.md, "First start".
set -eu
psql --username=postgres --dbname=speechgate --set=ON_ERROR_STOP=1 --set=password="$DATABASE_APP_PASSWORD" <<'SQL'
create role speechgate_app login password :'password';
SQL
