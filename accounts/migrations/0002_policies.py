"""auth.uid() as policies call it; tables of users, and of packages, that no client may read."""

from django.conf import settings
from django.db import migrations

from accounts.rls import enable_rls, hide_tables

# Not the digest: it would identify the token.
READABLE_TOKEN_COLUMNS = (
    "token_id", "user_id", "name", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at",
)  # fmt: skip
# Neither the key, which is a credential, nor the data.
READABLE_SESSION_COLUMNS = ("session_id", "user_id", "browser", "signed_in_at", "last_used_at", "expire_date")

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
    dependencies = [
        ("accounts", "0001_initial"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        migrations.RunSQL(UID, migrations.RunSQL.noop),
        hide_tables("users", "users_groups", "users_user_permissions", "rate_windows", "idempotency_keys", "invitations"),
        hide_tables("account_deletions", "user_identities"),
        enable_rls("api_tokens", "own_tokens", columns=READABLE_TOKEN_COLUMNS),
        enable_rls("user_sessions", "own_sessions", columns=READABLE_SESSION_COLUMNS),
        hide_tables("auth_group", "auth_group_permissions", "auth_permission"),
        hide_tables("django_admin_log", "django_content_type", "django_migrations"),
        hide_tables("django_q_ormq", "django_q_schedule", "django_q_task"),
    ]
