"""What is done already is passed over, and only a job that has been further is asked for it."""

import pytest

from jobs import worker
from jobs.models import Event, UploadJob
from testing.personas import Person, claim_at_stage, plan_pdf

pytestmark = pytest.mark.django_db


def passed_over() -> list[str]:
    events = Event.objects.filter(code="ALREADY_DONE").order_by("ts")
    return list(events.values_list("payload__from", flat=True))


def test_rewound_job_skips_finished_stages(ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("hospital care"))
    claim_at_stage("embeddings_buffered")
    assert passed_over() == []
    free = {"claim_token": None, "lease_until": None, "slot": None, "attempts": 0}
    UploadJob.objects.filter(pk=uploaded.job_id).update(stage="parsing", state="queued", **free)

    worker.drain()

    assert passed_over() == ["parsing", "chunking", "chunks_buffered", "embedding"]
    assert uploaded.job.state == "done"
