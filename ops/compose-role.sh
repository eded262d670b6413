#!/bin/sh
# Makes the role that the service connects with, when the database is new: docs/operations.md, "Roles".
set -eu
psql --username=postgres --dbname=speechgate --set=ON_ERROR_STOP=1 --set=password="$DATABASE_APP_PASSWORD" <<'SQL'
create role speechgate_app login password :'password';
SQL
