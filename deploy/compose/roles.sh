#!/bin/sh
# The first start of the database: its roles, the database and the extension (docs/operations/deploy.md).
set -eu
psql -v ON_ERROR_STOP=1 -v password="$ACCESSA_PASSWORD" -U postgres <<'SQL'
CREATE ROLE accessa_app LOGIN BYPASSRLS PASSWORD :'password';
CREATE ROLE accessa_client NOLOGIN;
GRANT accessa_client TO accessa_app WITH INHERIT FALSE, SET TRUE;
CREATE DATABASE accessa OWNER accessa_app;
\c accessa
CREATE EXTENSION vector;
SQL
