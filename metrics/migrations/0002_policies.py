from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("metrics", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        protect("spends", "spend_select_self", readable=False),
        protect("stored", "stored_select_self", readable=False),
    ]
