"""Campaigns' jobs are nobody's to see but staff's."""

from django.db import migrations

POLICY = "ALTER POLICY job_select_self ON upload_jobs USING (user_id = (SELECT auth.uid()){})"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_campaigns")]

    operations = [migrations.RunSQL(POLICY.format(" AND campaign_id IS NULL"), POLICY.format(""))]
