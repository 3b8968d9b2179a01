"""pgmq, its one queue, and the wrappers through which services without rights of their own may use it (spec 002 §6a)."""

from typing import Any

import pgmq
from django.core.exceptions import ImproperlyConfigured
from django.db import migrations, transaction
from django.db.utils import DatabaseError

from accounts.rls import revoke_function

OURS = "pgmq, installed by Accessa from its package"  # so that only what was made here is taken back
HAS_PGMQ = "SELECT to_regprocedure('pgmq.create(text)') IS NOT NULL"
HAS_SCHEMA = "SELECT to_regnamespace('pgmq') IS NOT NULL"
IS_OFFERED = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pgmq')"
COUNTS_HOLDS = """
    SELECT EXISTS (SELECT FROM pg_attribute
                   WHERE attrelid = 'pgmq.q_ingestion_queue'::regclass AND attname = 'headers' AND NOT attisdropped)"""

# Tables of a schema that PUBLIC may not use; with the policies' switch on, a right given by mistake shows nothing either.
QUEUE = """
    SELECT pgmq.create('ingestion_queue');
    ALTER TABLE pgmq.q_ingestion_queue ENABLE ROW LEVEL SECURITY;
    ALTER TABLE pgmq.a_ingestion_queue ENABLE ROW LEVEL SECURITY;
"""

# Spec 002 §4 replays by INSERT … SELECT from the archive. A page alone does not resume its sync, and its copy would be
# deleted unread: whoever inserts it is told the command that does both.
COPY_CHECK = """
    CREATE OR REPLACE FUNCTION public.refuse_copied_page() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $body$
    DECLARE archived bigint;
    BEGIN
        IF NEW.message ->> 'job_id' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
            SELECT a.msg_id INTO archived FROM pgmq.a_ingestion_queue a
            WHERE a.message = NEW.message AND EXISTS (
                SELECT FROM public.ingestion_jobs j
                WHERE j.id = (NEW.message ->> 'job_id')::uuid AND j.status = 'failed')
            LIMIT 1;
            IF archived IS NOT NULL THEN
                RAISE EXCEPTION 'The sync of this message has ended: its copy would be deleted unread.'
                    USING HINT = format('Run "manage.py replay_ingestion %s": it resumes the sync, too.', archived);
            END IF;
        END IF;
        RETURN NEW;
    END; $body$;
    CREATE OR REPLACE TRIGGER refuse_copied_page BEFORE INSERT ON pgmq.q_ingestion_queue
        FOR EACH ROW EXECUTE FUNCTION public.refuse_copied_page();
"""

# Spec 002 §6a, mended. A column of the result had the name of a parameter: a set of pgmq's own type keeps both names.
# Whoever defines temporary objects came before pg_catalog's in the search path. Any queue could be named.
_ONLY = """
    IF queue_name IS DISTINCT FROM 'ingestion_queue' THEN
        RAISE EXCEPTION 'This function serves ingestion_queue only.' USING ERRCODE = 'invalid_parameter_value';
    END IF;"""


def _wrapper(signature: str, returns: str, statement: str) -> str:
    return f"""
    CREATE FUNCTION public.{signature} RETURNS {returns}
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $body$ BEGIN {_ONLY} {statement} END; $body$;"""


WRAPPERS = {
    "ingestion_enqueue(text, jsonb, integer)": _wrapper(
        "ingestion_enqueue(queue_name text, message jsonb, delay integer DEFAULT 0)",
        "bigint",
        "RETURN (SELECT sent FROM pgmq.send(queue_name, message, delay) sent);",
    ),
    "ingestion_read(text, integer, integer)": _wrapper(
        "ingestion_read(queue_name text, vt integer DEFAULT 300, qty integer DEFAULT 1)",
        "SETOF pgmq.message_record",
        "RETURN QUERY SELECT * FROM pgmq.read(queue_name, vt, qty);",
    ),
    "ingestion_delete(text, bigint)": _wrapper(
        "ingestion_delete(queue_name text, msg_id bigint)", "boolean", "RETURN pgmq.delete(queue_name, msg_id);"
    ),
    "ingestion_archive(text, bigint)": _wrapper(
        "ingestion_archive(queue_name text, msg_id bigint)", "boolean", "RETURN pgmq.archive(queue_name, msg_id);"
    ),
}
RIGHTS = """
    DO $$
    BEGIN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'service_role') THEN
            GRANT EXECUTE ON FUNCTION public.{name} TO service_role;
        END IF;
    END $$;"""


def install(apps: Any, editor: Any) -> None:
    with editor.connection.cursor() as cursor:
        if not _says(cursor, HAS_SCHEMA) and not _extended(cursor, editor.connection.alias):
            cursor.execute(pgmq.get_embedded_install_sql())
            cursor.execute(f"COMMENT ON SCHEMA pgmq IS '{OURS}'")
        if not _says(cursor, HAS_PGMQ):
            raise ImproperlyConfigured("The database has a schema named pgmq that is not pgmq's.")
        cursor.execute(QUEUE)
        cursor.execute(COPY_CHECK + revoke_function("public.refuse_copied_page()"))
        if not _says(cursor, COUNTS_HOLDS):
            raise ImproperlyConfigured("The database's pgmq is too old: run ALTER EXTENSION pgmq UPDATE (1.5 or newer).")
        for name, made in WRAPPERS.items():
            cursor.execute(f"DROP FUNCTION IF EXISTS public.{name}")  # the spec's own, whose result has another shape
            cursor.execute(made)
            cursor.execute(revoke_function(f"public.{name}") + RIGHTS.format(name=name))


def _extended(cursor: Any, alias: str) -> bool:
    """Make the extension where the server has it and lets us."""
    if not _says(cursor, IS_OFFERED):
        return False
    try:
        with transaction.atomic(alias):
            cursor.execute("CREATE EXTENSION pgmq")
    except DatabaseError:  # not allowed to, or its files are broken: the same functions come with the package
        return False
    return True


def remove(apps: Any, editor: Any) -> None:
    with editor.connection.cursor() as cursor:
        for name in WRAPPERS:
            cursor.execute(f"DROP FUNCTION public.{name}")
        cursor.execute("SELECT pgmq.drop_queue('ingestion_queue')")
        cursor.execute("DROP FUNCTION public.refuse_copied_page()")
        cursor.execute("SELECT obj_description('pgmq'::regnamespace, 'pg_namespace'), EXISTS (SELECT FROM pgmq.meta)")
        comment, has_others = cursor.fetchone()
        if comment == OURS and not has_others:
            cursor.execute("DROP SCHEMA pgmq CASCADE")


def _says(cursor: Any, question: str) -> bool:
    cursor.execute(question)
    return bool(cursor.fetchone()[0])


class Migration(migrations.Migration):
    dependencies = [("integrations", "0002_policies")]

    operations = [migrations.RunPython(install, remove)]
