from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial"), ("accounts", "0002_row_level_security")]

    operations = [protect("upload_jobs", "job_select_self"), protect("events", "evt_select_self")]
