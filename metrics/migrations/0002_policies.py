from django.db import migrations

from accounts.rls import enable_rls


class Migration(migrations.Migration):
    dependencies = [("metrics", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("daily_spends", "daily_spend_select_self", readable=False),
        enable_rls("storage_usage", "storage_usage_select_self", readable=False),
    ]
