from django.db import migrations

from accounts.rls import hide_tables


class Migration(migrations.Migration):
    dependencies = [("statutes", "0001_initial"), ("accounts", "0002_policies")]

    operations = [hide_tables("laws", "law_versions", "sqs_consumers")]
