"""Row-level security of the import's tables. No tenant reads the runs."""

from django.db import migrations

from accounts.rls import enable_rls, hide_tables


class Migration(migrations.Migration):
    dependencies = [("legacy", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("legacy_documents", "legacy_document_select_self"),
        enable_rls("legacy_tenants", "legacy_tenant_select_self"),
        hide_tables("legacy_runs"),
    ]
