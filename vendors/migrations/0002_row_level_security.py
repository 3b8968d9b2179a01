from django.db import migrations

from accounts.rls import protect


class Migration(migrations.Migration):
    dependencies = [("vendors", "0001_initial"), ("accounts", "0002_row_level_security")]

    operations = [
        protect("purchases", "purchase_select_self"),
        protect("tenant_budgets", "tenant_budget_select_self"),
    ]
