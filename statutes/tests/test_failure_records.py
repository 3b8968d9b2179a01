"""S3 notifications of several files, of which one is refused: the others are processed."""

import json
from typing import Any

import pytest
from pytest_django import Settings

from jobs.models import UploadJob
from statutes.models import LawVersion
from statutes.sqs import message_bodies
from statutes.sqs.message_schema import Message, MessageRefused
from statutes.tests.sqs_messages import BUCKET, s3_record
from testing.cluster import wait_until
from testing.sqs import Queue, running_consumers

BODY = {"Records": [s3_record("raw/one/ok"), s3_record("raw/two+words/ok"), {"s3": 7}, s3_record("raw/three/ok")]}


def test_valid_records_are_parsed_beside_invalid_ones(settings: Settings) -> None:
    settings.STATUTES_BUCKET = BUCKET

    parsed = message_bodies.parse_body(json.dumps(BODY))

    assert [entry.law_id for entry in parsed.items if isinstance(entry, Message)] == ["one.ok", "three.ok"]
    assert [refused.code for refused in parsed.refused] == ["MESSAGE_KEY_UNUSABLE", "MESSAGE_INVALID"]
    with pytest.raises(MessageRefused, match="MESSAGE_KEY_UNUSABLE"):
        message_bodies.parse_items(json.dumps(BODY))


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_bad_record_becomes_a_dead_letter_after_the_others_succeed(
    queue: Queue, settings: Settings, caplog: Any
) -> None:
    settings.SQS_WAIT_SECONDS, settings.SQS_VISIBILITY_SECONDS = 1, 1
    settings.STATUTES_BUCKET, settings.JOBS_PIPELINES = BUCKET, "testing.statute_pipelines.PIPELINES"
    queue.send(BODY)

    with running_consumers() as [consumer]:
        wait_until(lambda: queue.dead_letter_count() == 1 and queue.is_empty, seconds=30)
        wait_until(lambda: not len(consumer.in_flight), seconds=5)

    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    codes = [each["code"] for each in lines if each["event"] == "A message was refused."]
    assert sorted(LawVersion.objects.values_list("law_id", "reprocessed")) == [("one.ok", 1), ("three.ok", 1)]
    assert list(UploadJob.objects.values_list("state", flat=True)) == ["done", "done"]
    assert codes == ["MESSAGE_KEY_UNUSABLE", "MESSAGE_INVALID"] * consumer.status.received
    assert (consumer.status.failed, consumer.status.ended) == (consumer.status.received, 0)
