"""Statute messages: valid ones, senders, and error codes."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import jsonschema
import pytest
from pytest_django import Settings

from statutes.sqs import message_bodies, message_schema, s3_events
from statutes.sqs.message_schema import Message, MessageRefused
from statutes.sqs.s3_events import UploadNotification
from statutes.tests.sqs_messages import BUCKET, message_body, s3_record


@pytest.fixture(autouse=True)
def buckets(settings: Settings) -> None:
    settings.STATUTES_BUCKET, settings.S3_RAW_BUCKET = BUCKET, "raw"


def parse(body: Any) -> list[message_bodies.Item]:
    return message_bodies.parse_items(body if isinstance(body, str) else json.dumps(body))


def refusal_code(body: Any) -> tuple[str, str]:
    with pytest.raises(MessageRefused) as refused:
        parse(body)
    return refused.value.code, refused.value.field


def test_the_message_of_the_spec_is_parsed() -> None:
    spec = {
        "document_id": "ISR_2024",
        "s3_raw_key": "raw/federal/2024/ley-iva.pdf",
        "uploader_id": "user-42",
        "ingest_timestamp": "2025-01-12T15:31:45Z",
        "priority": "normal",
        "version": "2024-01",
    }

    [message] = parse(spec)

    at = datetime(2025, 1, 12, 15, 31, 45, tzinfo=UTC)
    assert message == Message("ISR_2024", "2024-01", "raw/federal/2024/ley-iva.pdf", BUCKET, "user-42", at)


def test_a_sent_message_is_parsed_back(settings: Settings) -> None:
    settings.STATUTES_RAW_BUCKETS = ["elsewhere"]
    [message] = parse(message_body(priority="high", force_reprocess=True, bucket="elsewhere", version="2024.2 b"))
    assert isinstance(message, Message)

    again = parse(message.as_json())

    assert again == [message]


def test_unknown_fields_are_ignored() -> None:
    assert parse(message_body(trace={"id": "\u0001"}, tags=["a"])) == parse(message_body())


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(message_schema._validator().schema)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ("", "MESSAGE_NOT_JSON", ""),
        ("[]", "MESSAGE_NOT_JSON", ""),
        ('{"document_id": NaN}', "MESSAGE_NOT_JSON", ""),
        ("[" * 200_000, "MESSAGE_NOT_JSON", ""),
        ('{"version": "1", "version": "2"}', "MESSAGE_AMBIGUOUS", ""),
        (message_body(law_id="ISR", Records=[]), "MESSAGE_AMBIGUOUS", ""),
        (message_body(detail="x" * 1024 * 1024), "MESSAGE_TOO_LARGE", ""),
        (message_body(detail="ñ" * 600_000), "MESSAGE_TOO_LARGE", ""),
        (message_body("ISR\n"), "MESSAGE_CONTROL_CHARACTER", "document_id"),
        (message_body(uploader_id="a\u0000"), "MESSAGE_CONTROL_CHARACTER", "uploader_id"),
        (message_body(uploader_id="a\ud800"), "MESSAGE_CONTROL_CHARACTER", "uploader_id"),
        (message_body(what="a\u0085"), "MESSAGE_CONTROL_CHARACTER", "s3_raw_key"),
        ({}, "MESSAGE_INVALID", "document_id"),
        (message_body("../ISR"), "MESSAGE_INVALID", "document_id"),
        (message_body(".."), "MESSAGE_INVALID", "document_id"),
        (message_body("a/b"), "MESSAGE_INVALID", "document_id"),
        (message_body("x" * 129), "MESSAGE_INVALID", "document_id"),
        (message_body(version=2024), "MESSAGE_INVALID", "version"),
        (message_body(version=""), "MESSAGE_INVALID", "version"),
        (message_body(what="ñ" * 600), "MESSAGE_INVALID", "s3_raw_key"),
        (message_body(priority="urgent"), "MESSAGE_INVALID", "priority"),
        (message_body(force_reprocess="yes"), "MESSAGE_INVALID", "force_reprocess"),
        (message_body(bucket="Not_A_Bucket"), "MESSAGE_INVALID", "bucket"),
        (message_body(ingest_timestamp="yesterday"), "MESSAGE_INVALID", "ingest_timestamp"),
        (message_body(ingest_timestamp="2025-01-12T15:31:45"), "MESSAGE_INVALID", "ingest_timestamp"),
        ({"Records": [{}]}, "MESSAGE_INVALID", "Records"),
        ({"Records": ["x"]}, "MESSAGE_INVALID", "Records"),
        ({"Records": [s3_record("raw/a.pdf")] * 1001}, "MESSAGE_INVALID", "Records"),
        (message_body(bucket="raw"), "MESSAGE_BUCKET_REFUSED", "bucket"),
        ({"Records": [s3_record("raw/a%20b.pdf")]}, "MESSAGE_KEY_UNUSABLE", "key"),
        ({"Type": "Notification", "TopicArn": "arn", "Message": 1}, "MESSAGE_INVALID", "Message"),
    ],
)
def test_each_invalid_message_has_its_code(body: Any, code: str, field: str) -> None:
    assert refusal_code(body) == (code, field)


def test_an_error_repeats_nothing_of_the_message() -> None:
    with pytest.raises(MessageRefused) as refused:
        parse(message_body("123-45-6789\n"))

    assert "123-45-6789" not in str(refused.value)


def test_the_law_id_of_a_file_comes_from_its_folders() -> None:
    [message] = parse({"Records": [s3_record("raw/federal/2024/ley-iva.pdf")]})

    assert isinstance(message, Message)
    assert (message.law_id, message.raw_key) == ("federal.2024.ley-iva", "raw/federal/2024/ley-iva.pdf")
    assert (message.version, message.uploader_id) == ("2025-01-12T15:31:45.123000Z", "AWS:AIDAEXAMPLE")


@pytest.mark.parametrize(
    "key",
    [
        "raw/.", "raw/..", "raw/x/..", "raw/./x.pdf", "raw/x/../y.pdf", "raw//x.pdf", "raw//x", "raw/.pdf",
        "raw/us.ca/tax.pdf", "raw/us/ca.tax.docx", "raw/Act.1", "raw/Act.2", "raw/tax.pdf.xml", "raw/-tax.pdf",
        "raw/ley%C3%B1.pdf", f"raw/{'x' * 129}.pdf",
    ],
)  # fmt: skip
def test_an_ambiguous_key_is_rejected(key: str) -> None:
    assert refusal_code({"Records": [s3_record(key)]}) == ("MESSAGE_KEY_UNUSABLE", "key")


def test_only_formats_of_one_file_share_a_law_id() -> None:
    keys = ["raw/us/ca/tax", "raw/us/ca/tax.pdf", "raw/us/ca/tax.DOCX", "raw/us/ca/tax.xml", "raw/us/ca-tax.pdf"]

    assert [s3_events.law_id_from_key(key) for key in keys] == [*["us.ca.tax"] * 4, "us.ca-tax"]


def test_an_unexpected_error_rejects_the_message_and_is_logged(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.STATUTES_RAW_BUCKETS = None  # stands for a defect of ours

    with caplog.at_level("ERROR"):
        assert refusal_code(message_body()) == ("MESSAGE_UNREADABLE", "")
    assert "raw_buckets" in caplog.text
    assert "user-42" not in caplog.text


def test_an_upload_notification_names_its_document() -> None:
    document = UUID(int=7)

    items = parse({"Records": [s3_record(f"{UUID(int=3)}/{document}.pdf", "raw")]})

    assert items == [UploadNotification(UUID(int=3), document)]


def test_a_notification_may_name_several_files() -> None:
    records = [s3_record("raw/a.pdf"), s3_record("raw/b%5Fc.xml"), s3_record("raw/d.pdf")]

    assert [entry.law_id for entry in parse({"Records": records}) if isinstance(entry, Message)] == ["a", "b_c", "d"]


@pytest.mark.parametrize(
    "body",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET},
        {"Records": [s3_record("normalized/a/law.json")]},
        {"Records": [s3_record("raw/folder/")]},
        {"Records": [s3_record("raw/a.pdf", "another")]},
        {"Records": [s3_record("raw/a.pdf", name="ObjectRemoved:Delete")]},
        {"Records": [{**s3_record("raw/a.pdf"), "eventSource": "aws:other"}]},
        {"Records": []},
    ],
)
def test_unrelated_events_give_no_items(body: Any) -> None:
    assert parse(body) == []


@pytest.mark.parametrize("body", [message_body(), {"Records": [s3_record("raw/a.pdf")]}])
def test_an_sns_envelope_is_unwrapped(body: Any) -> None:
    envelope = {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": json.dumps(body), "MessageId": "1"}

    assert parse(envelope) == parse(body)


def test_eventbridge_events_are_parsed() -> None:
    detail = {"bucket": {"name": BUCKET}, "object": {"key": "raw/federal/ley_iva-1.pdf"}}
    event = {"source": "aws.s3", "detail-type": "Object Created", "time": "2025-01-12T15:31:45Z", "detail": detail}

    [message] = parse(event)

    assert isinstance(message, Message)
    assert message.law_id == "federal.ley_iva-1"
