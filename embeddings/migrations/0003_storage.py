"""What Django's models cannot say about the wide tables."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("embeddings", "0002_row_level_security")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX idx_vector_buffer_embedding_progress"
            " ON document_vector_buffer (document_id, embed_model, embed_version)",
            "DROP INDEX idx_vector_buffer_embedding_progress",
        ),
        # Room for the vectors to arrive in the page of their chunk (MVP context §4).
        migrations.RunSQL(
            "ALTER TABLE document_chunks SET (fillfactor = 70)", "ALTER TABLE document_chunks RESET (fillfactor)"
        ),
        # Both buffers are filled and emptied for every document: their dead rows must go before they pile up.
        migrations.RunSQL(
            """
            ALTER TABLE document_chunk_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
            ALTER TABLE document_vector_buffer SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
            """,
            migrations.RunSQL.noop,
        ),
    ]
