"""Triggers that make the audit log append-only."""

from django.conf import settings
from django.db import migrations

# Row triggers for UPDATE and DELETE: a statement that matches no row changes nothing. TRUNCATE needs a statement trigger.
APPEND_ONLY = f"""
CREATE FUNCTION keep_audit_entries() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    RAISE EXCEPTION 'Audit entries are kept as they were written: % is refused.', TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'Correct an entry by writing another one.';
END $f$;
CREATE TRIGGER audit_entries_are_kept BEFORE UPDATE OR DELETE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION keep_audit_entries();
CREATE TRIGGER audit_entries_are_not_emptied BEFORE TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION keep_audit_entries();
-- No tenant may read it, whatever the host grants to its roles on new tables.
REVOKE ALL ON audit_entries FROM {settings.TENANT_ROLE};
ALTER TABLE audit_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_entries FORCE ROW LEVEL SECURITY;
"""
REVERSE = """
ALTER TABLE audit_entries NO FORCE ROW LEVEL SECURITY;
ALTER TABLE audit_entries DISABLE ROW LEVEL SECURITY;
DROP TRIGGER audit_entries_are_not_emptied ON audit_entries;
DROP TRIGGER audit_entries_are_kept ON audit_entries;
DROP FUNCTION keep_audit_entries();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunSQL(APPEND_ONLY, REVERSE)]
