"""Priority of statutes, also among many."""

import json
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from jobs import worker
from jobs.models import UploadJob
from statutes import stages
from statutes.models import LawVersion
from statutes.tests import sample_laws
from statutes.tests.sample_laws import RATE, TAXED, deliver, law_xml
from testing.fakes.s3 import S3Server
from testing.planner_statistics import set_table_statistics

pytestmark = pytest.mark.django_db


def test_a_retried_urgent_statute_precedes_a_less_urgent_one(laws: S3Server) -> None:
    low = deliver(laws, law_xml(TAXED), law_id="low", raw_key="raw/low.xml", priority="low")
    high = deliver(laws, law_xml(RATE), law_id="high", raw_key="raw/high.xml", priority="high")
    LawVersion.objects.filter(law_id="high").update(status="failed")

    worker.drain()

    ended = UploadJob.objects.filter(state="done").values_list("pk", flat=True)
    assert list(ended) == [sample_laws.job_of(high).pk]
    assert sample_laws.job_of(low).wait_reason == "MORE_URGENT_LAW"


def test_the_urgency_query_reads_no_finished_statutes() -> None:
    params: dict[str, Any] = {
        "since": timezone.now(), "aged": 900.0, "before": ["high"], "pipeline": "statute", "first": "queued",
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO law_versions (document_id, law_id, version, bucket, raw_key, status, priority, job_id)
            SELECT gen_random_uuid(), 'L' || n, '1', 'b', 'k', CASE WHEN n % 2 = 0 THEN 'embedded' ELSE 'failed' END,
                   'high', CASE WHEN n % 2 = 0 THEN gen_random_uuid() END FROM generate_series(1, 4000) n""")
        set_table_statistics("law_versions", pages=2_000, rows=100_000)
        set_table_statistics("upload_jobs")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {stages.MORE_URGENT}", params)
        plan = json.dumps(cursor.fetchone()[0])

    assert "ix_law_versions_urgent" in plan
    assert "Seq Scan" not in plan
    assert "Join" not in plan
    assert rows_read(json.loads(plan)[0]["Plan"]) == 0


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many versions a plan has read, those among them that it then left out."""
    mine = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if plan.get("Alias") == "v" else 0
    return int(mine) + sum(rows_read(part) for part in plan.get("Plans", []))
