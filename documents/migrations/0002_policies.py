"""Row-level security, and the trigger that copies a job's status to documents.processing_status."""

from django.db import migrations

from accounts.rls import enable_rls, hide_functions, hide_tables

# The job of a campaign does not belong to the tenant: a searchable document does not become "embedding" by it.
STATUS_TRIGGER = """
CREATE FUNCTION follow_job_status() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    IF NEW.campaign_id IS NOT NULL THEN RETURN NULL; END IF;
    UPDATE documents SET processing_status = NEW.status, updated_at = clock_timestamp()
    WHERE document_id = NEW.document_id;
    RETURN NULL;
END $f$;
CREATE TRIGGER job_declared AFTER INSERT ON upload_jobs
    FOR EACH ROW EXECUTE FUNCTION follow_job_status();
CREATE TRIGGER job_moved AFTER UPDATE ON upload_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION follow_job_status();
"""
NO_STATUS_TRIGGER = """
DROP TRIGGER job_moved ON upload_jobs;
DROP TRIGGER job_declared ON upload_jobs;
DROP FUNCTION follow_job_status();
"""


class Migration(migrations.Migration):
    dependencies = [("documents", "0001_initial"), ("jobs", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("documents", "doc_select_self"),
        enable_rls("tags", "tag_select_self"),
        enable_rls("document_tags", "document_tag_select_self"),
        hide_tables("parse_requests", "document_ocr_pages", "document_staged_parses", "object_deletions"),
        migrations.RunSQL(STATUS_TRIGGER, NO_STATUS_TRIGGER),
        hide_functions("follow_job_status()"),
    ]
