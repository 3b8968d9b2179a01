"""Row-level security, the triggers that note orphaned uploads, and the columns and functions of record search."""

from django.conf import settings
from django.db import migrations

from accounts.rls import enable_rls, hide_functions, hide_tables, revoke_function

# Notes each uploaded document to which a record no longer refers: a new version, a tombstone, a purged source.
ORPHAN_TRIGGERS = """
CREATE FUNCTION doubt_upload() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    INSERT INTO orphan_candidates (document_id, source_id, external_id)
    VALUES (OLD.upload_document_id, OLD.source_id, OLD.external_id);
    RETURN NULL;
END $f$;
CREATE TRIGGER upload_is_left AFTER UPDATE OF upload_document_id, deleted_at ON source_documents
    FOR EACH ROW WHEN (OLD.upload_document_id IS NOT NULL AND OLD.deleted_at IS NULL
        AND (NEW.deleted_at IS NOT NULL OR NEW.upload_document_id IS DISTINCT FROM OLD.upload_document_id))
    EXECUTE FUNCTION doubt_upload();
CREATE TRIGGER upload_is_forgotten AFTER DELETE ON source_documents
    FOR EACH ROW WHEN (OLD.upload_document_id IS NOT NULL)
    EXECUTE FUNCTION doubt_upload();
"""
NO_ORPHAN_TRIGGERS = """
DROP TRIGGER upload_is_forgotten ON source_documents;
DROP TRIGGER upload_is_left ON source_documents;
DROP FUNCTION doubt_upload();
"""

# An index over words alone would hold a tenant's few rows among everybody's, and no index over them serves under
# row-level security (`@@` is not leakproof). So a word is entered under its owner: each tenant has lists of its own.
KEYS = """
    CREATE FUNCTION record_key(owner uuid, word text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT hashtextextended(word, uuid_hash_extended(owner, 0))
    $$;
    CREATE FUNCTION record_keys(owner uuid, words tsvector) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT coalesce(array_agg(hashtextextended(word, uuid_hash_extended(owner, 0))), '{}')
        FROM unnest(tsvector_to_array(words)) word
    $$;
"""
NO_KEYS = "DROP FUNCTION record_keys(uuid, tsvector); DROP FUNCTION record_key(uuid, text);"

# Not columns of the models, since no code loads them. Text beyond 100,000 characters is found by its vector only: a
# tsvector holds at most a megabyte. One sign bit for each dimension: an index of 29 MB selects the 4,000 of 100,000
# vectors worth comparing; the vectors themselves are 800 MB.
# Fillfactor 85: a sync without changes still updates last_seen in each row.
COLUMNS = """
    ALTER TABLE {table} ADD COLUMN search tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('english', left({title}, 1000)), 'A') || to_tsvector('english', left(text, 100000))
    ) STORED;
    ALTER TABLE {table} ADD COLUMN embedding_signs bit(1536) GENERATED ALWAYS AS (
        binary_quantize(embedding)::bit(1536)
    ) STORED;
    ALTER TABLE {table} SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05);
    CREATE INDEX ix_{table}_words ON {table} USING gin (record_keys(user_id, search))
        WITH (gin_pending_list_limit = 512);
    CREATE INDEX ix_{table}_vectors ON {table} (user_id, embedding_model, source_id)
        INCLUDE (id, embedding_signs) WHERE embedding_model IS NOT NULL;
    CREATE INDEX ix_{table}_waiting ON {table} (user_id) WHERE embedding_model IS NULL AND text <> '';
"""
NO_COLUMNS = """
    DROP INDEX ix_{table}_waiting; DROP INDEX ix_{table}_vectors; DROP INDEX ix_{table}_words;
    ALTER TABLE {table} DROP COLUMN embedding_signs;
    ALTER TABLE {table} DROP COLUMN search;
    ALTER TABLE {table} RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
"""

# The caller's rows that have any of the words; `required` is what must hold of them besides. Bounded, however common
# the words: 32 of them, each counted up to 2,001; rows are looked at by the rarest words, 5,000 at most, and where all
# words are common, those that have all of them. A LIMIT or an OFFSET keeps the planner from going through all rows of
# the tenant instead.
FIND = """
    CREATE FUNCTION {function}(words text[], required tsquery, sources uuid[], most integer)
    RETURNS TABLE (id uuid, score double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off SET work_mem = '32MB'
    SET max_parallel_workers_per_gather = 0
    AS $$
        WITH me AS MATERIALIZED (SELECT auth.uid() AS uid),
        size AS MATERIALIZED (
            SELECT count(*)::float8 AS n
            FROM (SELECT FROM {table} d WHERE d.user_id = (SELECT uid FROM me) LIMIT 10000) own),
        asked AS MATERIALIZED (
            SELECT word, record_key(uid, word) AS key,
                   ('''' || replace(replace(word, '\\', '\\\\'), '''', '''''') || '''')::tsquery AS query
            FROM me, unnest(words[1:32]) word),
        counted AS MATERIALIZED (
            SELECT a.*, (
                SELECT count(*) FROM (
                    SELECT FROM {table} d WHERE record_keys(d.user_id, d.search) @> ARRAY[a.key] LIMIT 2001) c) AS df
            FROM asked a),
        weighed AS MATERIALIZED (
            SELECT query, ln(1 + greatest(n - df + 0.5, 0.5) / (df + 0.5)) AS idf FROM counted, size WHERE df > 0),
        rare AS MATERIALIZED (
            SELECT key FROM (
                SELECT key, sum(df) OVER (ORDER BY df, word) AS together FROM counted WHERE df BETWEEN 1 AND 2000) r
            WHERE together <= 5000),
        looked_at AS MATERIALIZED (
            SELECT f.id FROM rare r, LATERAL (
                SELECT d.id FROM {table} d WHERE record_keys(d.user_id, d.search) @> ARRAY[r.key] LIMIT 2000) f
            UNION
            SELECT f.id FROM (
                SELECT d.id FROM {table} d
                WHERE record_keys(d.user_id, d.search) @> (SELECT array_agg(key) FROM counted WHERE df > 2000)
                LIMIT 2000) f
            WHERE NOT EXISTS (SELECT FROM rare))
        SELECT d.id, (
            SELECT sum(w.idf * ts_rank('{{0.3, 0.3, 0.3, 1}}', d.search, w.query, 1)) FROM weighed w)::float8 AS score
        FROM looked_at l, LATERAL (SELECT * FROM {table} r WHERE r.id = l.id OFFSET 0) d
        WHERE d.user_id = (SELECT uid FROM me) AND {findable}
          AND (numnode(required) = 0 OR d.search @@ required)
        ORDER BY score DESC, d.id LIMIT most
    $$;
    {revoke}
    GRANT EXECUTE ON FUNCTION {function}(text[], tsquery, uuid[], integer) TO {role};
"""
NO_FIND = "DROP FUNCTION {function}(text[], tsquery, uuid[], integer);"

DOCUMENTS = {
    "table": "source_documents",
    "title": "title",
    "function": "find_source_documents",
    "findable": "d.deleted_at IS NULL AND d.source_id = ANY(sources)",
}
CLIENTS = {
    "table": "client_intelligence",
    "title": "client_name",
    "function": "find_clients",
    "findable": "(d.source_id IS NULL OR d.source_id = ANY(sources))",
}


def _findable(**named: str) -> list[migrations.RunSQL]:
    revoke = revoke_function(f"{named['function']}(text[], tsquery, uuid[], integer)")
    return [
        migrations.RunSQL(make.format(**named, role=settings.TENANT_ROLE, revoke=revoke), unmake.format(**named))
        for make, unmake in ((COLUMNS, NO_COLUMNS), (FIND, NO_FIND))
    ]


class Migration(migrations.Migration):
    dependencies = [("integrations", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("connected_sources", "connected_source_select_self"),
        enable_rls("ingestion_jobs", "ingestion_job_select_self"),
        enable_rls("source_documents", "source_document_select_self"),
        enable_rls("client_intelligence", "client_intelligence_select_self"),
        hide_tables("vault_tokens", "orphan_candidates"),
        migrations.RunSQL(ORPHAN_TRIGGERS, NO_ORPHAN_TRIGGERS),
        hide_functions("doubt_upload()"),
        # Spec 002 §1: the name is too long for an index of Django's.
        migrations.RunSQL(
            """
            CREATE INDEX source_documents_embedding_text_sha256_idx ON source_documents (embedding_text_sha256)
                WHERE embedding_text_sha256 IS NOT NULL;
            """,
            "DROP INDEX source_documents_embedding_text_sha256_idx;",
        ),
        migrations.RunSQL(KEYS, NO_KEYS),
        hide_functions("record_key(uuid, text)", "record_keys(uuid, tsvector)"),
        *_findable(**DOCUMENTS),
        *_findable(**CLIENTS),
    ]
