from django.db import migrations

from accounts.rls import enable_rls, hide_tables


class Migration(migrations.Migration):
    dependencies = [("vendors", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("purchases", "purchase_select_self"),
        enable_rls("tenant_budgets", "tenant_budget_select_self"),
        hide_tables("vendor_rate_limits", "vendor_breakers", "vendor_calls"),
        # Only staff see the purchases of campaigns.
        migrations.RunSQL(
            "ALTER POLICY purchase_select_self ON purchases"
            " USING (user_id = (SELECT auth.uid()) AND campaign_id IS NULL)",
            migrations.RunSQL.noop,
        ),
    ]
