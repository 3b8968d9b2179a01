from django.db import migrations

from accounts.rls import hide_tables


class Migration(migrations.Migration):
    dependencies = [("reindexing", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        hide_tables("campaigns", "campaign_tenants"),
    ]
