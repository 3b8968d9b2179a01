"""Row-level security, and the storage parameters that Django's models cannot express."""

from django.db import migrations

from accounts.rls import enable_rls, hide_functions, hide_tables

# Vectors in line: a scan reads 5,000 of them in 8 ms; fetching each from the TOAST table took 20 ms. The other columns
# move out instead: only the rows of an answer need them.
# Fillfactor 70 leaves room for a vector in the page of its chunk (MVP context §4).
# Both buffers are filled and emptied for every document: their dead rows must go before they pile up. Each document
# writes its chunks twice, a campaign's settling once more (MVP context §15): vacuum after 5 % and not after 20 %, which
# of a million rows would be 1.5 GB, and with a budget that keeps up with a bulk load.
STORAGE = """
ALTER TABLE document_chunks ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE shadow_vectors ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE document_vector_buffer ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE document_chunks SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
ALTER TABLE shadow_vectors SET (autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
ALTER TABLE document_terms SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE posting_blocks SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE posting_blocks ALTER COLUMN postings SET STORAGE EXTERNAL, ALTER COLUMN row_postings SET STORAGE EXTERNAL;
ALTER TABLE document_chunk_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE document_vector_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
"""
# Vectors of sentences do not compress, and go with their passage, whoever deletes it.
SENTENCES = """
ALTER TABLE sentence_vectors ALTER COLUMN vectors SET STORAGE EXTERNAL;
ALTER TABLE sentence_vectors SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE sentence_vectors ADD CONSTRAINT sentence_vectors_chunk FOREIGN KEY (chunk_id)
    REFERENCES document_chunks ON DELETE CASCADE;
"""
NO_SENTENCES = "ALTER TABLE sentence_vectors DROP CONSTRAINT sentence_vectors_chunk;"
# Not columns of the models, since no code loads them. One sign bit for each dimension, in the index by which a tenant's
# vectors are scanned: 250 bytes a vector instead of 6,148 while the tenant's next HNSW index is built late.
SIGNS = """
ALTER TABLE {table} ADD COLUMN embedding_signs bit(1536) GENERATED ALWAYS AS (
    binary_quantize(embedding)::bit(1536)
) STORED;
DROP INDEX {index};
CREATE INDEX {index} ON {table} (user_id, embed_model, embed_version, embed_updated_at)
    INCLUDE (chunk_id, embedding_signs);
"""
NO_SIGNS = """
DROP INDEX {index};
ALTER TABLE {table} DROP COLUMN embedding_signs;
CREATE INDEX {index} ON {table} (user_id, embed_model, embed_version, embed_updated_at);
"""
SIGNS_OF = (("document_chunks", "ix_chunks_user_model"), ("shadow_vectors", "ix_shadows_user_model"))

# A merged document whose terms are deleted counts no more in its segment, whoever deletes them.
DELETED_TRIGGER = """
CREATE FUNCTION delete_from_posting_segment() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    UPDATE posting_segments
    SET deleted_documents = deleted_documents || OLD.document_id, deleted_at = coalesce(deleted_at, clock_timestamp())
    WHERE segment_id = OLD.segment_id;
    RETURN NULL;
END $f$;
CREATE TRIGGER merged_document_is_deleted AFTER DELETE ON document_terms
    FOR EACH ROW WHEN (OLD.segment_id IS NOT NULL)
    EXECUTE FUNCTION delete_from_posting_segment();
"""
NO_DELETED_TRIGGER = """
DROP TRIGGER merged_document_is_deleted ON document_terms;
DROP FUNCTION delete_from_posting_segment();
"""


class Migration(migrations.Migration):
    dependencies = [("embeddings", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        # The specs' name is too long for an index of Django's.
        migrations.RunSQL(
            "CREATE INDEX idx_vector_buffer_embedding_progress"
            " ON document_vector_buffer (document_id, embed_model, embed_version)",
            "DROP INDEX idx_vector_buffer_embedding_progress",
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(SENTENCES, NO_SENTENCES),
        *(
            migrations.RunSQL(SIGNS.format(table=table, index=index), NO_SIGNS.format(table=table, index=index))
            for table, index in SIGNS_OF
        ),
        enable_rls("document_chunk_buffer", "chunk_buffer_select_self"),
        enable_rls("document_chunks", "chunk_select_self"),
        enable_rls("document_vector_buffer", "vector_buffer_select_self"),
        enable_rls("shadow_vectors", "shadow_select_self"),
        enable_rls("sentence_vectors", "sentence_select_self"),
        enable_rls("document_terms", "term_select_self"),
        enable_rls("posting_segments", "posting_segment_select_self"),
        enable_rls("posting_blocks", "posting_block_select_self"),
        migrations.RunSQL(DELETED_TRIGGER, NO_DELETED_TRIGGER),
        hide_functions("delete_from_posting_segment()"),
        enable_rls("vector_indexes", "vector_index_select_self"),
        hide_tables("active_models"),
    ]
