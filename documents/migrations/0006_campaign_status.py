"""A campaign's job is not the tenant's: a document that is searchable does not say that it is being embedded."""

from django.db import migrations

BODY = """
CREATE OR REPLACE FUNCTION follow_job_status() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    {guard}
    UPDATE documents SET processing_status = NEW.status, updated_at = clock_timestamp()
    WHERE document_id = NEW.document_id;
    RETURN NULL;
END $f$;
"""


class Migration(migrations.Migration):
    dependencies = [("documents", "0005_chunks_version"), ("jobs", "0003_campaigns")]

    operations = [
        migrations.RunSQL(
            BODY.format(guard="IF NEW.campaign_id IS NOT NULL THEN RETURN NULL; END IF;"), BODY.format(guard="")
        )
    ]
