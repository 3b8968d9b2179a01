"""Roles, extensions and the database of a data directory, created by the superuser."""

import hashlib
from pathlib import Path

import psycopg

OWNER = "accessa_app"
DATABASE = "accessa"

# Roles are cluster-wide and extensions need a superuser: made here, so that parallel test databases do not race.
ROLES = (
    """
    DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'accessa_app') THEN CREATE ROLE accessa_app; END IF;
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'accessa_client') THEN CREATE ROLE accessa_client; END IF;
    END $$
    """,
    "ALTER ROLE accessa_app LOGIN CREATEDB BYPASSRLS NOSUPERUSER NOCREATEROLE NOREPLICATION",
    "ALTER ROLE accessa_client NOLOGIN NOCREATEDB NOBYPASSRLS NOSUPERUSER NOCREATEROLE NOREPLICATION",
    "GRANT accessa_client TO accessa_app WITH INHERIT FALSE, SET TRUE",
)
EXTENSIONS = """
    DO $$
    DECLARE extension_name text;
    BEGIN
        CREATE EXTENSION IF NOT EXISTS vector;
        ALTER EXTENSION vector UPDATE;
        FOR extension_name IN
            SELECT name FROM pg_available_extensions WHERE name IN ('pg_trgm', 'unaccent', 'pg_stat_statements')
        LOOP
            EXECUTE format('CREATE EXTENSION IF NOT EXISTS %I', extension_name);
        END LOOP;
        -- It shows statements of others' as they were sent where it has not normalized them.
        IF to_regproc('pg_stat_statements') IS NOT NULL THEN
            REVOKE ALL ON FUNCTION pg_stat_statements(boolean) FROM PUBLIC;
        END IF;
    END $$
"""
VERSION = hashlib.sha256("".join((*ROLES, EXTENSIONS)).encode()).hexdigest()


def is_done(data: Path) -> bool:
    try:
        return (data / "accessa.bootstrap").read_text() == VERSION
    except FileNotFoundError:
        return False


def prepare(host: Path) -> None:
    """Create or update roles, extensions and database. Idempotent: an older version's database is updated too."""
    with _superuser(host, "postgres") as postgres:
        for statement in ROLES:
            postgres.execute(statement)
        exists = postgres.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount
    with _superuser(host, "template1") as template:
        template.execute(EXTENSIONS)
    if exists:
        with _superuser(host, DATABASE) as database:
            database.execute(EXTENSIONS)
        return
    with _superuser(host, "postgres") as postgres:  # after template1, of which it is a copy
        postgres.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")


def _superuser(host: Path, database: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host=str(host), port=5432, user="postgres", dbname=database, autocommit=True)
