"""documents.processing_status is derived: the database copies it from the job at every move."""

from django.db import migrations

FOLLOW = """
CREATE FUNCTION follow_job_status() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    UPDATE documents SET processing_status = NEW.status, updated_at = clock_timestamp()
    WHERE document_id = NEW.document_id;
    RETURN NULL;
END $f$;
CREATE TRIGGER job_declared AFTER INSERT ON upload_jobs
    FOR EACH ROW EXECUTE FUNCTION follow_job_status();
CREATE TRIGGER job_moved AFTER UPDATE ON upload_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION follow_job_status();
"""
UNFOLLOW = """
DROP TRIGGER job_moved ON upload_jobs;
DROP TRIGGER job_declared ON upload_jobs;
DROP FUNCTION follow_job_status();
"""


class Migration(migrations.Migration):
    dependencies = [("documents", "0002_row_level_security"), ("jobs", "0001_initial")]

    operations = [migrations.RunSQL(FOLLOW, UNFOLLOW)]
