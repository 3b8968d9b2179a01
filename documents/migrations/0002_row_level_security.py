from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("documents", "0001_initial"), ("accounts", "0002_row_level_security")]

    operations = [protect("documents", "doc_select_self")]
