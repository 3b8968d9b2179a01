from django.db import migrations

from accounts.rls import hide_tables


class Migration(migrations.Migration):
    dependencies = [("metrics", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        hide_tables("metric_rollups", "measurement_runs", "daily_spends", "storage_usage"),
    ]
