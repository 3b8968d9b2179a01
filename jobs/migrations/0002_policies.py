from django.db import migrations

from accounts.rls import enable_rls, hide_tables


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("upload_jobs", "job_select_self"),
        enable_rls("events", "evt_select_self"),
        hide_tables("clusters", "pauses"),
        # Only staff see the jobs of campaigns.
        migrations.RunSQL(
            "ALTER POLICY job_select_self ON upload_jobs"
            " USING (user_id = (SELECT auth.uid()) AND campaign_id IS NULL)",
            migrations.RunSQL.noop,
        ),
    ]
