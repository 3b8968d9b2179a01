"""`manage.py laws` against a real queue and a bucket."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import audit_entries
from statutes import document_ids
from statutes.models import Law, LawVersion
from statutes.sqs import client, dead_letters, message_bodies
from statutes.sqs.message_schema import Message
from statutes.tests.sample_laws import BUCKET, KEY, TAXED, law_xml, process, put_file
from statutes.tests.sqs_messages import message_body
from testing.fakes.s3 import S3Server
from testing.sqs import Queue, SqsServer

pytestmark = pytest.mark.django_db


def command_output(*args: str) -> str:
    out = io.StringIO()
    call_command("laws", *args, stdout=out)
    return out.getvalue()


def put_dead(queue: Queue, *bodies: dict[str, Any] | str) -> None:
    for body in bodies:
        text = body if isinstance(body, str) else json.dumps(body)
        queue._client.send_message(QueueUrl=queue.dead_url, MessageBody=text)


def test_statutes_are_listed_shown_reprocessed_and_withdrawn(laws: S3Server) -> None:
    job = process(laws, law_xml(TAXED))
    Law.objects.create(law_id="LISR", version="2", status="failed", title="Ley de Renta")
    LawVersion.objects.create(
        document_id=document_ids.document_id("LISR", "2"), law_id="LISR", version="2", bucket="b", raw_key="k",
        status="failed", error_code="NO_TEXT",
    )  # fmt: skip

    listed = command_output("list").splitlines()[1:]
    assert [line.split()[:3] for line in listed] == [["LISR", "failed:", "NO_TEXT"], ["LIVA", "embedded", "2024-01"]]
    assert listed[0].rstrip().endswith("Ley de Renta")
    assert "LIVA" not in command_output("list", "--status", "failed")
    shown = command_output("show", "LIVA")
    assert all(each in shown for each in ("2024-01", str(job.pk), "embedded, done", "normalized/LIVA/manifest.json"))
    with pytest.raises(CommandError, match="no such statute"):
        command_output("show", "NONE")

    assert str(job.pk) not in command_output("reprocess", "LIVA", "2024-01", "--reason", "T-1")
    with pytest.raises(CommandError, match=r"^JOB_ALREADY_ACTIVE: "):
        command_output("reprocess", "LIVA", "2024-01")
    assert command_output("withdraw", "LIVA", "--reason", "T-2") == "Withdrawn.\n"
    assert not Law.objects.filter(pk="LIVA").exists()
    assert [(action, actor) for action, actor, *_ in audit_entries()] == [
        ("laws.reprocess", "command line"), ("laws.withdraw", "command line"),
    ]  # fmt: skip


@pytest.mark.slow
def test_valid_dead_letters_are_redriven_and_invalid_ones_stay(queue: Queue) -> None:
    put_dead(queue, message_body("ISR_2024"), message_body("IVA_2024", force_reprocess=True), "no JSON of somebody")

    shown = command_output("redrive")
    assert (queue.dead_letter_count(), queue.is_empty) == (3, True)
    moved = command_output("redrive", "--yes", "--reason", "T-3")

    for each in (shown, moved):
        assert "ISR_2024 2024-01" in each
        assert "MESSAGE_NOT_JSON" in each
        assert "somebody" not in each
    assert "3 dead letters. 2 can be put back: manage.py laws redrive --yes. 1 cannot: they are invalid" in shown
    assert "2 put back, 1 left" in moved
    assert (queue.dead_letter_count(), queue.message_counts()) == (1, (2, 0))
    received_messages = client.receive_messages(queue.url, most=10, wait=1)
    sent_items = [message_bodies.parse_items(each.body)[0] for each in received_messages]
    assert sorted((each.law_id, each.force_reprocess) for each in sent_items if isinstance(each, Message)) == [
        ("ISR_2024", False), ("IVA_2024", True),
    ]  # fmt: skip
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.reason, entry.details) == ("laws.redrive", "T-3", {"messages": 2})


@pytest.mark.slow
def test_a_dead_letter_returns_to_its_source_queue(queue: Queue, queues: SqsServer, settings: Any) -> None:
    urgent = queues.create_queue()
    settings.SQS_PRIORITY_QUEUE_URL = urgent.url
    put_dead(urgent, message_body("URGENT"))

    command_output("redrive", "--yes")

    assert (queue.message_counts(), urgent.message_counts()) == ((0, 0), (1, 0))


def test_a_queue_without_a_dead_letter_queue_has_no_dead_letters(queues: SqsServer, queue: Queue) -> None:
    assert dead_letters.receive_dead_letters([queues.create_queue(most=None).url]) == []


def test_a_message_is_sent_for_an_existing_file(queue: Queue, laws: S3Server) -> None:
    put_file(laws, law_xml(TAXED))

    sent = command_output(
        "send", KEY, "--law", "LIVA", "--version", "2024-01", "--priority", "high", "--force", "--reason", "T-4"
    )

    [received] = client.receive_messages(queue.url, wait=1)
    [message] = message_bodies.parse_items(received.body)
    assert isinstance(message, Message)
    assert received.message_id in sent
    assert (message.law_id, message.version, message.raw_key, message.bucket) == ("LIVA", "2024-01", KEY, BUCKET)
    assert (message.priority, message.force_reprocess) == ("high", True)
    assert [(action, object_id) for action, _, object_id, _ in audit_entries()] == [("laws.send", "LIVA")]


@pytest.mark.parametrize(
    ("key", "law", "code"),
    [("raw/none.pdf", "LIVA", "RAW_FILE_MISSING"), (KEY, "../LIVA", "MESSAGE_INVALID")],
)
def test_an_invalid_message_is_not_sent(key: str, law: str, code: str, queue: Queue, laws: S3Server) -> None:
    put_file(laws, law_xml(TAXED))

    with pytest.raises(CommandError, match=f"^{code}: "):
        command_output("send", key, "--law", law, "--version", "1")

    assert queue.is_empty
    assert not audit_entries()


def test_a_missing_queue_is_reported_by_its_code(queue: Queue, settings: Any) -> None:
    settings.SQS_QUEUE_URL += "-gone"

    with pytest.raises(CommandError, match=r"^SQS_NO_QUEUE: "):
        command_output("redrive")
    settings.SQS_QUEUE_URL = ""
    with pytest.raises(CommandError, match="Set SQS_QUEUE_URL"):
        command_output("redrive")
