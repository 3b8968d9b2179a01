"""Row-level security, and the storage parameters that Django's models cannot express."""

from django.db import migrations

from accounts.rls import enable_rls, hide_tables

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
ALTER TABLE document_chunk_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE document_vector_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
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
        enable_rls("document_chunk_buffer", "chunk_buffer_select_self"),
        enable_rls("document_chunks", "chunk_select_self"),
        enable_rls("document_vector_buffer", "vector_buffer_select_self"),
        enable_rls("shadow_vectors", "shadow_select_self"),
        enable_rls("document_terms", "term_select_self"),
        enable_rls("vector_indexes", "vector_index_select_self"),
        hide_tables("active_models"),
    ]
