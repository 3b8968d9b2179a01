from django.conf import settings
from django.db import migrations

from accounts.rls import enable_rls

COLUMNS = """id, user_id, url, events, enabled, disabled_code, failures, failing_since, paused_until,
    previous_secret_until, created_at, updated_at"""


class Migration(migrations.Migration):
    dependencies = [("outbox", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("outbox", "outbox_select_self"),
        enable_rls("webhook_endpoints", "webhook_endpoint_select_self"),
        # No tenant reads a secret, encrypted as it is.
        migrations.RunSQL(
            f"""
            REVOKE SELECT ON webhook_endpoints FROM {settings.TENANT_ROLE};
            GRANT SELECT ({COLUMNS}) ON webhook_endpoints TO {settings.TENANT_ROLE};
            """,
            migrations.RunSQL.noop,
        ),
    ]
