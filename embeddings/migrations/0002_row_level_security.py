from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("embeddings", "0001_initial"), ("accounts", "0002_row_level_security")]

    operations = [
        protect("document_chunk_buffer", "chunk_buffer_select_self"),
        protect("document_chunks", "chunk_select_self"),
        protect("document_vector_buffer", "vector_buffer_select_self"),
    ]
