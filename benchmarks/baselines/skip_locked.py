"""Baseline for the job queue: a loop over FOR UPDATE SKIP LOCKED, two commits a job. Argument: a conninfo."""

import sys
import time

import psycopg

TABLE = """
    CREATE TABLE IF NOT EXISTS bare_jobs (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), user_id uuid NOT NULL, state text NOT NULL DEFAULT 'queued',
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz);
    CREATE INDEX IF NOT EXISTS bare_jobs_due ON bare_jobs (created_at) WHERE state = 'queued'"""
CLAIM = """
    UPDATE bare_jobs SET state = 'working' WHERE id = (
        SELECT id FROM bare_jobs WHERE state = 'queued' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id"""
FINISH = "UPDATE bare_jobs SET state = 'done', finished_at = clock_timestamp() WHERE id = %s"


def work(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while True:
            claimed = connection.execute(CLAIM, prepare=True).fetchone()
            if claimed is None:
                time.sleep(0.05)
                continue
            connection.execute(FINISH, claimed, prepare=True)


if __name__ == "__main__":
    work(sys.argv[1])
