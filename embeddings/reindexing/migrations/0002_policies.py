from django.db import migrations

from accounts.rls import enable_rls


class Migration(migrations.Migration):
    dependencies = [("reindexing", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("campaign_tenants", "campaign_tenant_select_self", readable=False),
    ]
