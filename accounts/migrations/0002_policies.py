"""auth.uid() as policies call it, and row-level security of the user tables."""

from django.conf import settings
from django.db import migrations

from accounts.rls import enable_rls

# Supabase has auth.uid(); elsewhere it is created here with the same result. After SET LOCAL the setting is '' and not
# NULL, hence the nullif.
UID = f"""
CREATE SCHEMA IF NOT EXISTS auth;
DO $do$ BEGIN
    IF to_regprocedure('auth.uid()') IS NULL THEN
        CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS $f$
            SELECT coalesce(
                nullif(current_setting('request.jwt.claim.sub', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub'
            )::uuid
        $f$;
    END IF;
END $do$;
GRANT USAGE ON SCHEMA auth TO {settings.TENANT_ROLE};
GRANT USAGE ON SCHEMA public TO {settings.TENANT_ROLE};
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("admin", "0003_logentry_add_action_flag_choices")]

    operations = [
        migrations.RunSQL(UID, migrations.RunSQL.noop),
        enable_rls("api_tokens", "token_select_self", readable=False),
        enable_rls("users_groups", "user_group_select_self", readable=False),
        enable_rls("users_user_permissions", "user_permission_select_self", readable=False),
        enable_rls("django_admin_log", "admin_log_select_self", readable=False),
    ]
