"""Vectors in line, and who may read what finds them."""

from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("embeddings", "0004_finding")]

    operations = [
        # In line: a scan reads 5,000 of them in 8 ms, where fetching each from the TOAST table took 20. The other
        # columns move out instead, which only what was found is asked for.
        migrations.RunSQL(
            """
            ALTER TABLE document_chunks ALTER COLUMN embedding SET STORAGE PLAIN;
            ALTER TABLE shadow_vectors ALTER COLUMN embedding SET STORAGE PLAIN;
            ALTER TABLE document_vector_buffer ALTER COLUMN embedding SET STORAGE PLAIN;
            """,
            """
            ALTER TABLE document_chunks ALTER COLUMN embedding SET STORAGE EXTERNAL;
            ALTER TABLE document_vector_buffer ALTER COLUMN embedding SET STORAGE EXTERNAL;
            """,
        ),
        # Each document writes its rows twice, a campaign's settling once more (MVP context §15): vacuumed after 5 % and not
        # after 20 %, which of a million rows would be 1.5 GB, and with a budget that keeps up with a bulk load.
        migrations.RunSQL(
            """
            ALTER TABLE document_chunks SET (autovacuum_vacuum_scale_factor = 0.05,
                autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
            ALTER TABLE shadow_vectors SET (autovacuum_vacuum_scale_factor = 0.05,
                autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
            ALTER TABLE document_terms SET (autovacuum_vacuum_scale_factor = 0.05);
            """,
            migrations.RunSQL.noop,
        ),
        protect("shadow_vectors", "shadow_select_self"),
        protect("document_terms", "term_select_self"),
        protect("live_models", "live_model_select_self", readable=False),
        protect("vector_indexes", "vector_index_select_self"),
    ]
