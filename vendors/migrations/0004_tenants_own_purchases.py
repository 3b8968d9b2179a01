"""Campaigns' purchases are nobody's to see but staff's."""

from django.db import migrations

POLICY = "ALTER POLICY purchase_select_self ON purchases USING (user_id = (SELECT auth.uid()){})"


class Migration(migrations.Migration):
    dependencies = [("vendors", "0003_campaigns")]

    operations = [migrations.RunSQL(POLICY.format(" AND campaign_id IS NULL"), POLICY.format(""))]
