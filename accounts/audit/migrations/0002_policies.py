"""Triggers that make the audit log append-only."""

from django.db import migrations

from accounts.rls import hide_functions, hide_tables

# Row triggers for UPDATE and DELETE: a statement that matches no row changes nothing. TRUNCATE needs a statement trigger.
APPEND_ONLY = """
CREATE FUNCTION keep_audit_entries() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    RAISE EXCEPTION 'Audit entries are kept as they were written: % is refused.', TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'Correct an entry by writing another one.';
END $f$;
CREATE TRIGGER audit_entries_are_kept BEFORE UPDATE OR DELETE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION keep_audit_entries();
CREATE TRIGGER audit_entries_are_not_emptied BEFORE TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION keep_audit_entries();
"""
REVERSE = """
DROP TRIGGER audit_entries_are_not_emptied ON audit_entries;
DROP TRIGGER audit_entries_are_kept ON audit_entries;
DROP FUNCTION keep_audit_entries();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [
        migrations.RunSQL(APPEND_ONLY, REVERSE),
        hide_tables("audit_entries"),
        hide_functions("keep_audit_entries()"),
    ]
