from django.db import migrations

from tenancy.rls import protect


class Migration(migrations.Migration):
    dependencies = [("integrations", "0001_initial"), ("tenancy", "0002_row_level_security")]

    operations = [
        protect("connected_sources", "connected_source_select_self"),
        protect("ingestion_jobs", "ingestion_job_select_self"),
        protect("source_documents", "source_document_select_self"),
        protect("client_intelligence", "client_intelligence_select_self"),
        protect("vault_tokens", "vault_token_select_self", readable=False),
        # Spec 002 §1: the name is too long for one of Django's own.
        migrations.RunSQL(
            """
            CREATE INDEX source_documents_embedding_text_sha256_idx ON source_documents (embedding_text_sha256)
                WHERE embedding_text_sha256 IS NOT NULL;
            """,
            "DROP INDEX source_documents_embedding_text_sha256_idx;",
        ),
    ]
