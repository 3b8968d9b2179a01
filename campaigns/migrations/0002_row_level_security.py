from django.db import migrations

from tenancy.rls import protect


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0001_initial"), ("tenancy", "0002_row_level_security")]

    operations = [protect("campaign_tenants", "campaign_tenant_select_self", readable=False)]
