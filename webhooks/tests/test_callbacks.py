"""Callbacks of every kind and their outcomes: the table in webhooks/views.py, row by row."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import requests
from django.db import connection
from django.test import Client

from documents.models import Document, ParseRequest
from jobs import services
from jobs.models import UploadJob
from testing.fakes import llamaparse_callbacks
from vendors.webhook_secrets import webhook_secrets
from webhooks.models import Delivery
from webhooks.tests.conftest import VENDOR_JOB, Parse, submitted_parse
from webhooks.tests.signers import (
    SIGNERS,
    LlamaCloudSigner,
    SignedRequest,
    Signer,
    StandardSigner,
    event_payload,
    post,
    status_and_code,
)

MARKDOWN = "# Plan\n\nThe deductible is 500 dollars. Überfällig: 日本語.\n"
ENDINGS = ["parse.success", "parse.error", "parse.partial_success", "parse.cancelled"]
OTHERS = ["parse.running", "parse.pending", "extract.success", "parse.retired", "PARSE.SUCCESS", "x"]

senders = pytest.mark.parametrize("sender", SIGNERS, ids=lambda sender: sender.scheme)
pytestmark = pytest.mark.django_db


def artifact(markdown: str, **changes: Any) -> dict[str, Any]:
    encoded = markdown.encode(errors="surrogatepass")
    sha256 = hashlib.sha256(encoded).hexdigest()
    return {"type": "markdown", "content": markdown, "sha256": sha256, "bytes": len(encoded)} | changes


def contract(parse: Parse, content: str = MARKDOWN, **changes: Any) -> dict[str, Any]:
    return {
        "job_id": str(parse.job_id),
        "document_id": str(parse.document_id),
        "status": "parsed",
        "artifacts": [artifact(content)],
        "meta": {"parser_name": "llamaparse", "parser_version": "2025-08-01"},
    } | changes


def untouched(parse: Parse) -> bool:
    return parse.waits and parse.codes == [] and parse.job.stage == "parsing" and not Delivery.objects.exists()


# LlamaCloud's announcement


@senders
@pytest.mark.parametrize("event_type", ENDINGS)
def test_a_final_event_wakes_the_waiting_job(sender: Signer, event_type: str, parse: Parse) -> None:
    answer = post(sender.send(event_payload(VENDOR_JOB, event_type)))

    assert status_and_code(answer) == (200, "JOB_WOKEN")
    assert not parse.waits
    assert parse.codes == ["DUE"]


@pytest.mark.parametrize("event_type", OTHERS)
def test_events_that_are_not_final_change_nothing(event_type: str, parse: Parse) -> None:
    answer = post(LlamaCloudSigner().send(event_payload(VENDOR_JOB, event_type)))

    assert status_and_code(answer) == (200, "EVENT_IGNORED")
    assert parse.waits
    assert parse.codes == []


def test_a_beginning_that_comes_after_the_end_changes_nothing(parse: Parse) -> None:
    post(LlamaCloudSigner().send(event_payload(VENDOR_JOB)))

    assert status_and_code(post(LlamaCloudSigner().send(event_payload(VENDOR_JOB, "parse.running")))) == (
        200,
        "EVENT_IGNORED",
    )
    assert parse.codes == ["DUE"]


@pytest.mark.parametrize("state", ["collected", "failed"])
def test_a_late_final_event_changes_nothing(state: str, parse: Parse) -> None:
    parse.ended(state)

    assert status_and_code(post(LlamaCloudSigner().send(event_payload(VENDOR_JOB)))) == (200, "ALREADY_ENDED")
    assert parse.waits


def test_a_final_event_before_the_request_is_recorded_succeeds_when_repeated(parse: Parse) -> None:
    requests = ParseRequest.objects.filter(document_id=parse.document_id)
    requests.update(vendor_job_id=None, state="planned")
    sent = LlamaCloudSigner().send(event_payload(VENDOR_JOB))

    early = status_and_code(post(sent))
    requests.update(vendor_job_id=VENDOR_JOB, state="submitted")

    assert early == (404, "CALLBACK_UNKNOWN_JOB")
    assert status_and_code(post(sent)) == (200, "JOB_WOKEN")


def test_a_final_event_wakes_no_other_job(parse: Parse) -> None:
    other = submitted_parse("pjb-other")

    post(LlamaCloudSigner().send(event_payload("pjb-other")))

    assert parse.waits
    assert not other.waits


@pytest.mark.parametrize("data", [
    None, [], "x", {}, {"job_id": None}, {"job_id": 7}, {"job_id": ""}, {"job_id": "a\x00"}, {"job_id": "\ud800"},
    {"job_id": "j" * 201}, {"job_id": {"$ne": ""}},
], ids=ascii)  # fmt: skip
def test_an_announcement_of_another_form_is_refused(data: Any, parse: Parse) -> None:
    assert status_and_code(post(LlamaCloudSigner().send({"event_type": "parse.success", "data": data}))) == (
        400,
        "INVALID_REQUEST",
    )
    assert untouched(parse)


# The specs' contract


@senders
def test_the_content_is_stored_and_the_job_goes_on(sender: Signer, parse: Parse) -> None:
    answer = post(sender.send(contract(parse)))

    assert status_and_code(answer) == (200, "PARSE_STORED")
    assert (parse.job.stage, parse.job.state, parse.waits) == ("parsed", "queued", False)
    assert parse.codes == ["PARSE_STORED"]
    assert parse.job.parsed_sha256 == Document.objects.get(pk=parse.document_id).parsed_sha256 is not None


def test_repeated_content_under_another_id_changes_nothing(parse: Parse) -> None:
    post(StandardSigner().send(contract(parse)))

    assert status_and_code(post(StandardSigner().send(contract(parse)))) == (200, "ALREADY_PARSED")
    assert parse.codes == ["PARSE_STORED"]


def test_content_that_differs_from_the_stored_parse_is_refused(parse: Parse) -> None:
    post(StandardSigner().send(contract(parse)))
    first = parse.job.parsed_sha256

    assert status_and_code(post(StandardSigner().send(contract(parse, "# Another plan\n")))) == (
        409,
        "CALLBACK_CONTRADICTS",
    )
    assert parse.job.parsed_sha256 == first
    assert Delivery.objects.count() == 1


def test_content_for_a_campaigns_parse_wakes_its_job_and_leaves_the_document(parse: Parse) -> None:
    UploadJob.objects.filter(pk=parse.job_id).update(pipeline="reparse", campaign_id=uuid4(), low_priority=True)

    answer = post(StandardSigner().send(contract(parse)))

    assert status_and_code(answer) == (200, "JOB_WOKEN")
    assert (parse.job.stage, parse.waits, parse.codes) == ("parsing", False, ["DUE"])
    assert Document.objects.get(pk=parse.document_id).parsed_sha256 is None


def test_content_for_a_job_that_waits_for_none_is_refused(parse: Parse) -> None:
    services.cancel(parse.job, by="test")

    assert status_and_code(post(StandardSigner().send(contract(parse)))) == (409, "JOB_NOT_PARSING")
    assert Delivery.objects.count() == 0


def test_an_unsuccessful_parse_wakes_the_job(parse: Parse) -> None:
    assert status_and_code(post(StandardSigner().send(contract(parse, status="failed", artifacts=[])))) == (
        200,
        "JOB_WOKEN",
    )
    assert not parse.waits


def test_an_unknown_job_and_another_documents_are_answered_alike(parse: Parse) -> None:
    other = submitted_parse("pjb-other")
    unknown = contract(parse, job_id=str(uuid4()))
    gone = contract(parse, document_id=str(uuid4()))
    mixed = contract(parse, document_id=str(other.document_id))

    answers = [post(StandardSigner().send(payload)) for payload in (unknown, gone, mixed)]

    assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
    assert untouched(parse)
    assert untouched(other)


@pytest.mark.parametrize("artifacts", [
    [], [artifact(MARKDOWN), artifact(MARKDOWN)], [artifact(MARKDOWN, type="text")],
    [artifact(MARKDOWN, sha256="0" * 64)], [artifact(MARKDOWN, sha256=None)], [artifact(MARKDOWN, sha256="")],
    [artifact(MARKDOWN, sha256=artifact(MARKDOWN)["sha256"].upper())],
    [artifact(MARKDOWN, sha256=artifact(MARKDOWN + " ")["sha256"])],
    [artifact(MARKDOWN, bytes=len(MARKDOWN))], [artifact(MARKDOWN, bytes=0)], [artifact(MARKDOWN, bytes=None)],
    [artifact(MARKDOWN, bytes=str(len(MARKDOWN.encode())))], [artifact(MARKDOWN, content=None)],
    [artifact(MARKDOWN, content=MARKDOWN + " ")], [artifact("")], [{"type": "markdown"}],
], ids=lambda artifacts: ascii(artifacts)[:60])  # fmt: skip
def test_content_that_does_not_match_its_hash_is_refused(artifacts: list[Any], parse: Parse) -> None:
    assert status_and_code(post(StandardSigner().send(contract(parse, artifacts=artifacts)))) == (
        422,
        "ARTIFACT_MISMATCH",
    )
    assert untouched(parse)


def test_one_markdown_among_other_artifacts_is_taken(parse: Parse) -> None:
    artifacts = [artifact("{}", type="json"), artifact(MARKDOWN), {"type": "image"}]

    assert status_and_code(post(StandardSigner().send(contract(parse, artifacts=artifacts)))) == (200, "PARSE_STORED")


@pytest.mark.parametrize("changes", [
    {"job_id": None}, {"job_id": "x"}, {"job_id": 1}, {"document_id": "\x00"}, {"document_id": []}, {"status": None},
    {"status": ["parsed"]}, {"artifacts": None}, {"artifacts": {}}, {"artifacts": ["x"]}, {"artifacts": [[]]},
    {"artifacts": [artifact("a\ud800b")]}, {"meta": None}, {"meta": []}, {"meta": {"parser_name": "llamaparse"}},
    {"meta": {"parser_name": "a\x00", "parser_version": "1"}}, {"meta": {"parser_name": "a", "parser_version": 1}},
], ids=lambda changes: ascii(changes)[:60])  # fmt: skip
def test_a_contract_of_another_form_is_refused(changes: dict[str, Any], parse: Parse) -> None:
    assert status_and_code(post(StandardSigner().send(contract(parse, **changes)))) == (400, "INVALID_REQUEST")
    assert untouched(parse)


def test_nul_in_the_content_is_no_fault(parse: Parse) -> None:
    assert status_and_code(post(StandardSigner().send(contract(parse, "# Pl\x00an\n\nText.\n")))) == (
        200,
        "PARSE_STORED",
    )


# Our own faults


def through_the_product(sent: SignedRequest) -> Any:
    client = Client(raise_request_exception=False)
    return client.generic(
        "POST", "/webhooks/llamaparse", sent.body, content_type="application/json", headers=sent.headers
    )


def store_away(settings: Any) -> Callable[[], object]:
    root = Path(settings.STORAGE_ROOT)
    shutil.rmtree(root, ignore_errors=True)
    root.write_text("a file where the folder should be")
    return root.unlink


def table_locked(settings: Any) -> Callable[[], object]:
    """Another session holds the job's row, and ours does not wait for ever."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")
    other = psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor})
    other.execute("SELECT 1 FROM upload_jobs FOR UPDATE")

    def release() -> None:
        other.close()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")

    return release


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("break_it", [store_away, table_locked])
@senders
def test_a_storage_failure_is_503_and_the_repeated_callback_succeeds(
    sender: Signer, break_it: Callable[[Any], Callable[[], object]], parse: Parse, settings: Any
) -> None:
    sent = sender.send(contract(parse))
    mend = break_it(settings)

    failed = through_the_product(sent)
    mend()

    assert (failed.status_code, failed["Retry-After"]) == (503, "5")
    assert untouched(parse)
    assert status_and_code(through_the_product(sent)) == (200, "PARSE_STORED")


def test_a_bug_of_ours_is_500_and_leaves_no_delivery(parse: Parse) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE documents ADD CONSTRAINT no_parse CHECK (parsed_sha256 IS NULL)")

    answer = through_the_product(StandardSigner().send(contract(parse)))

    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert untouched(parse)


# The address


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_post_is_answered(method: str) -> None:
    answer = Client().generic(method, "/webhooks/llamaparse")

    assert (answer.status_code, answer["Allow"]) == (405, "POST")


def test_a_callback_is_answered_by_the_deployed_stack(parse: Parse) -> None:
    answer = through_the_product(LlamaCloudSigner().send(event_payload(VENDOR_JOB)))

    assert (answer.status_code, answer.json()) == (200, {"code": "JOB_WOKEN"})


def test_a_session_or_a_token_is_no_signature(parse: Parse) -> None:
    answer = Client().post(
        "/webhooks/llamaparse", contract(parse), content_type="application/json", headers={"authorization": "Bearer x"}
    )

    assert status_and_code(answer) == (401, "INVALID_SIGNATURE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("output", ["json", "string"])
def test_a_vendor_callback_is_accepted_over_http_and_a_forged_one_refused(
    output: str, parse: Parse, live_server: Any
) -> None:
    to = {
        "webhook_url": f"{live_server.url}/webhooks/llamaparse",
        "webhook_output_format": output,
        "webhook_signing_secret": webhook_secrets()[0],
    }
    letter = llamaparse_callbacks.build_callback(
        VENDOR_JOB, to, llamaparse_callbacks.event(VENDOR_JOB, "parse.success")
    )

    bodies = [letter.body.replace(b"success", b"failure"), letter.body, letter.body]
    answers = [requests.post(letter.url, body, headers=letter.headers, timeout=10) for body in bodies]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (401, "INVALID_SIGNATURE"),
        (200, "JOB_WOKEN"),
        (200, "JOB_WOKEN"),
    ]
    assert parse.codes == ["DUE"]


@senders
def test_nothing_of_a_callback_is_written_down(sender: Signer, parse: Parse, caplog: pytest.LogCaptureFixture) -> None:
    canary = "canary-078-05-1120"
    caplog.set_level(logging.DEBUG)
    logging.getLogger("django.db.backends").setLevel(logging.INFO)
    payloads = [
        contract(parse, f"# {canary}\n"),
        contract(parse, f"# {canary} 2\n"),
        contract(parse, status=canary),
        contract(parse, meta={canary: canary}),
        contract(parse, artifacts=[artifact(canary, sha256=canary)]),
        event_payload(canary) | {"event_type": canary},
        event_payload(canary),
    ]

    answers = [through_the_product(sender.send(payload)) for payload in payloads]
    sent = sender.send(payloads[0])
    answers.append(through_the_product(sent.with_body(sent.body + b" ")))

    assert "PARSE_STORED" in caplog.text, "nothing was logged: the test hears nothing"
    stored = [json.dumps(list(model.objects.values()), default=str) for model in (Delivery, UploadJob)]
    events = json.dumps(list(parse.job.events.values()), default=str)
    for written in (caplog.text, events, *stored, *[answer.content.decode() for answer in answers]):
        assert canary not in written
        assert sent.headers[sender.signature] not in written
