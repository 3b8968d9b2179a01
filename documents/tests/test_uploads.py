"""POST /upload: the contract, dedupe, and every limit with its own code (MVP context §6 and §9)."""

import json
import threading
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest
from django.conf import settings
from django.db import connection

from accounts.models import RateWindow
from documents import error_codes, services
from documents.deterministic_ids import document_id
from documents.models import Document
from documents.services import DeclaredUpload
from embeddings.models import DocumentChunk
from jobs import worker
from jobs.models import Event, UploadJob
from testing.cluster import wait_until
from testing.concurrency import run_concurrently
from testing.pdfs import text_pdf
from testing.personas import Person, age_first_use, make_parked_jobs_due, plan_pdf, upload_request

ROOT = Path(__file__).resolve().parents[2]
PDF = plan_pdf("drugs")
NOT_PDF = b"GIF89a, for all one knows"
pytestmark = pytest.mark.django_db


def schema(name: str) -> dict[str, Any]:
    contents: dict[str, Any] = json.loads((ROOT / "schemas" / name).read_text())
    jsonschema.Draft202012Validator.check_schema(contents)
    return contents


def error_of(answer: Any) -> tuple[int, str, str | None]:
    body = answer.json()
    assert set(body) <= {"code", "detail", "field"}
    assert body["detail"]
    return answer.status_code, body["code"], body.get("field")


# The contract


def test_both_payloads_match_the_published_schemas(ana: Person) -> None:
    request = upload_request(PDF) | {"ocr": False}
    answer = ana.post("/upload", request)

    jsonschema.validate(request, schema("upload.request.json"))
    checker = jsonschema.FormatChecker()
    jsonschema.validate(answer.json(), schema("upload.response.json"), format_checker=checker)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes_len": 0},
        {"bytes_len": 26214401},
        {"mime": "image/png"},
        {"sha256": "F" * 64},
        {"filename": ""},
        {"ocr": "no"},
    ],
)
def test_the_request_schema_refuses_what_the_api_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(upload_request(PDF) | wrong, schema("upload.request.json"))


def test_ids_and_paths_follow_from_the_tenant_and_the_bytes(ana: Person) -> None:
    declared = upload_request(PDF)
    body = ana.post("/upload", declared).json()

    document = Document.objects.get()
    assert document.pk == UUID(body["document_id"]) == document_id(ana.id, declared["sha256"])
    assert document.raw_path == f"storage://raw/{ana.id}/{document.pk}.pdf"
    assert (document.user_id, document.bytes_len, document.mime) == (ana.id, len(PDF), "application/pdf")
    assert UploadJob.objects.get().state == "queued"


def test_the_upload_expires_when_its_url_does(ana: Person) -> None:
    body = ana.request_upload(PDF).json()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()

    left = datetime.fromisoformat(body["upload_expires_at"]) - now
    assert settings.SIGNED_URL_SECONDS - 10 < left.total_seconds() <= settings.SIGNED_URL_SECONDS


# Dedupe


def test_declaring_the_same_bytes_again_returns_the_same_ids_and_a_new_url(ana: Person) -> None:
    first = ana.request_upload(PDF).json()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE documents SET upload_expires_at = now() - interval '1 hour'")

    second = ana.request_upload(PDF, filename="another name.pdf").json()

    assert set(second) == {"job_id", "document_id", "signed_url", "upload_expires_at"}
    assert (second["job_id"], second["document_id"]) == (first["job_id"], first["document_id"])
    assert datetime.fromisoformat(second["upload_expires_at"]) > datetime.now().astimezone()
    assert ana.client.put(second["signed_url"], PDF, content_type="application/pdf").status_code == 200
    assert Event.objects.filter(code="UPLOAD_DEDUP_HIT").count() == 1
    assert Document.objects.count() == UploadJob.objects.count() == 1


def test_a_finished_document_is_not_processed_again(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    before = uploaded.job.updated_at

    again = ana.request_upload(PDF).json()
    worker.drain()

    assert UUID(again["job_id"]) == uploaded.job_id
    assert (uploaded.job.state, uploaded.job.updated_at) == ("done", before)


def test_declaring_a_failed_file_again_retries_its_job(ana: Person) -> None:
    uploaded = ana.ingest(NOT_PDF)
    assert uploaded.failure == "NOT_A_PDF"

    again = ana.request_upload(NOT_PDF).json()

    job = uploaded.job
    assert UUID(again["job_id"]) == job.pk
    assert (job.state, job.last_error, job.attempts, job.retry_count) == ("queued", None, 0, 0)


def test_a_file_that_was_never_uploaded_can_be_declared_again(ana: Person) -> None:
    ana.request_upload(PDF)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE documents SET upload_expires_at = now() - interval '2 minutes'")
    worker.drain()
    assert (UploadJob.objects.get().last_error or {})["code"] == "UPLOAD_EXPIRED"

    uploaded = ana.ingest(PDF)

    assert uploaded.job.state == "done"


def test_uploads_do_not_reveal_that_another_tenant_has_the_same_bytes(ana: Person, ben: Person) -> None:
    uploaded = ana.ingest(PDF)

    known, new = ben.request_upload(PDF), ben.request_upload(plan_pdf("dental"))

    assert known.status_code == new.status_code == 200
    assert dict(known.headers).keys() == dict(new.headers).keys()
    assert known.json()["document_id"] != str(uploaded.document_id)
    events = Event.objects.filter(user_id=ben.id).values_list("code", "type", "severity", "payload")
    assert len(set(map(str, events))) == 1
    states = UploadJob.objects.filter(user_id=ben.id).values_list("stage", "state", "progress", "payload", "total_pct")
    assert len(set(map(str, states))) == 1
    # And her bytes are not lent to him: his job waits for his own.
    worker.drain()
    assert set(UploadJob.objects.filter(user_id=ben.id).values_list("wait_reason", flat=True)) == {"WAITING_FOR_UPLOAD"}


@pytest.mark.django_db(transaction=True)
def test_concurrent_declarations_of_a_failed_file_retry_its_job_once(ana: Person) -> None:
    failed = ana.ingest(b"no PDF")
    assert failed.failure == "NOT_A_PDF"

    answers = run_concurrently(*[lambda: ana.request_upload(b"no PDF")] * 4)

    assert [answer.status_code for answer in answers] == [200] * 4
    assert {answer.json()["job_id"] for answer in answers} == {str(failed.job_id)}
    assert failed.job.state == "queued"
    assert failed.job.events.filter(code="REQUEUED").count() == 1


@pytest.mark.django_db(transaction=True)
def test_declared_twice_at_the_same_moment_there_is_one_document(ana: Person) -> None:

    answers = run_concurrently(*[lambda: ana.request_upload(PDF)] * 4)

    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert Document.objects.count() == UploadJob.objects.count() == 1


# Limits


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"bytes_len": settings.MAX_FILE_BYTES + 1}, (413, "FILE_TOO_LARGE", "bytes_len")),
        ({"bytes_len": 10**30}, (413, "FILE_TOO_LARGE", "bytes_len")),
        ({"bytes_len": 0}, (400, "EMPTY_FILE", "bytes_len")),
        ({"bytes_len": -1}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"bytes_len": 1.5}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"bytes_len": "many"}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"bytes_len": None}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"bytes_len": True}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"bytes_len": [1]}, (400, "INVALID_REQUEST", "bytes_len")),
        ({"mime": "image/png"}, (415, "UNSUPPORTED_TYPE", "mime")),
        ({"mime": "application/pdf\r\nX: y"}, (415, "UNSUPPORTED_TYPE", "mime")),
        ({"mime": "application/pdfx"}, (415, "UNSUPPORTED_TYPE", "mime")),
        ({"mime": ""}, (400, "INVALID_REQUEST", "mime")),
        ({"mime": {}}, (400, "INVALID_REQUEST", "mime")),
        ({"sha256": "abc"}, (400, "INVALID_SHA256", "sha256")),
        ({"sha256": "g" * 64}, (400, "INVALID_SHA256", "sha256")),
        ({"sha256": "A" * 64}, (400, "INVALID_SHA256", "sha256")),
        ({"sha256": "a" * 64 + "\n"}, (400, "INVALID_SHA256", "sha256")),
        ({"sha256": "a" * 300}, (400, "INVALID_SHA256", "sha256")),
        ({"filename": "x" * 121}, (400, "FILENAME_TOO_LONG", "filename")),
        ({"filename": "\x13" + "x" * 120}, (400, "FILENAME_TOO_LONG", "filename")),
        ({"filename": "x" * 20000}, (400, "FILENAME_TOO_LONG", "filename")),
        ({"filename": "😀" * 121}, (400, "FILENAME_TOO_LONG", "filename")),
        ({"filename": "\x00\x01\x7f\u200b"}, (400, "INVALID_FILENAME", "filename")),
        ({"filename": "   "}, (400, "INVALID_FILENAME", "filename")),
        ({"filename": ".."}, (400, "INVALID_FILENAME", "filename")),
        ({"filename": "a/"}, (400, "INVALID_FILENAME", "filename")),
        ({"filename": ""}, (400, "INVALID_REQUEST", "filename")),
        ({"filename": None}, (400, "INVALID_REQUEST", "filename")),
        ({"filename": ["a.pdf"]}, (400, "INVALID_REQUEST", "filename")),
        ({"ocr": "perhaps"}, (400, "INVALID_REQUEST", "ocr")),
    ],
)
def test_a_limit_is_refused_with_its_own_code_and_nothing_is_stored(
    changes: dict[str, Any], expected: tuple[int, str, str], ana: Person
) -> None:
    assert error_of(ana.request_upload(PDF, **changes)) == expected
    assert not Document.objects.exists()
    assert not UploadJob.objects.exists()
    assert not RateWindow.objects.exists()


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("plan.pdf", "plan.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ana\\plan.pdf", "plan.pdf"),
        ("a\x00b.pdf", "ab.pdf"),
        ("plan\r\nSet-Cookie: x=1.pdf", "planSet-Cookie: x=1.pdf"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("\u2066plan\u2069\ufeff.pdf", "plan.pdf"),
        ("  plan 2025 .pdf ", "plan 2025 .pdf"),
        ("Versicherung für Zoë 😀.pdf", "Versicherung für Zoë 😀.pdf"),
        ("a\u2028b\u2029.pdf", "ab.pdf"),
        ("\x07" * 4 + "x" * 112 + ".pdf", "x" * 112 + ".pdf"),
    ],
)
def test_misleading_characters_are_removed_from_file_names(filename: str, expected: str, ana: Person) -> None:
    answer = ana.request_upload(PDF, filename=filename)

    assert answer.status_code == 200
    assert Document.objects.get().filename == expected


def test_the_stored_file_name_is_shown_and_used_for_downloads(ana: Person) -> None:
    uploaded = ana.ingest(PDF, filename='ü"; x=\u202e😀.pdf')
    link = ana.get(f"/documents/{uploaded.document_id}/original").json()["signed_url"]

    answer = ana.client.get(link)
    answer.close()
    header = answer["Content-Disposition"]

    assert header.startswith("attachment; filename")
    assert "\u202e" not in header


def test_uploads_beyond_the_daily_limit_wait_for_the_window(ana: Person, ben: Person) -> None:
    for number in range(settings.UPLOADS_PER_DAY):
        assert ana.request_upload(b"%d" % number).status_code == 200

    refused = ana.request_upload(b"one more")

    assert error_of(refused) == (429, "UPLOAD_LIMIT_REACHED", None)
    assert 86_000 < int(refused["Retry-After"]) <= 86_400
    assert UploadJob.objects.count() == settings.UPLOADS_PER_DAY
    # Asking again for a URL that one has is no upload, and another tenant is not concerned.
    assert ana.request_upload(b"0").status_code == 200
    assert ben.request_upload(b"one more").status_code == 200

    age_first_use("25 hours")
    assert ana.request_upload(b"one more").status_code == 200
    assert ana.request_upload(b"and one more").status_code == 429


@pytest.mark.django_db(transaction=True)
def test_uploads_are_counted_across_connections(ana: Person, settings: Any) -> None:
    settings.UPLOADS_PER_DAY = 5

    def declare(name: int) -> list[int]:
        return [ana.request_upload(b"%d %d" % (name, number)).status_code for number in range(4)]

    codes = run_concurrently(*[partial(declare, name) for name in range(3)])

    assert sorted(chain(*codes)) == [200] * 5 + [429] * 7


def uses_of(person: Person) -> int:
    return sum(window.uses for window in RateWindow.objects.filter(key=f"upload:{person.id}"))


@pytest.mark.django_db(transaction=True)
def test_an_upload_waits_for_no_other_upload_of_the_tenant(ana: Person) -> None:
    """Only a document's own lock is held while a declaration is committed."""
    documents, is_open = Document.objects.filter(user_id=ana.id), threading.Event()

    def wait_for_the_other(_: UUID) -> None:
        is_open.set()
        wait_until(lambda: documents.count() == 2, seconds=10)  # its own, and the committed one of the other

    def declare_meanwhile() -> DeclaredUpload:
        is_open.wait(10)
        return services.declare(user_id=ana.id, **upload_request(plan_pdf("dental")))

    first = partial(services.declare, user_id=ana.id, **upload_request(PDF), claim=wait_for_the_other)
    run_concurrently(first, declare_meanwhile)

    assert documents.count() == uses_of(ana) == 2


@pytest.mark.django_db(transaction=True)
def test_twins_that_declare_a_file_at_once_count_one_upload(ana: Person) -> None:
    answers = run_concurrently(*[partial(ana.request_upload, PDF) for _ in range(6)])

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert uses_of(ana) == 1


def test_a_declaration_that_fails_counts_no_upload(ana: Person) -> None:
    assert ana.request_upload(PDF).status_code == 200

    def fail(_: UUID) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        services.declare(user_id=ana.id, **upload_request(b"another"), claim=fail)

    assert uses_of(ana) == Document.objects.count() == 1


def test_a_use_that_nobody_expected_is_counted_when_it_is_taken(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document was there when it was looked for, and is deleted before its lock is taken."""
    monkeypatch.setattr(services, "_causes_work", lambda *_, **__: False)

    assert ana.request_upload(PDF).status_code == 200
    assert uses_of(ana) == 1


# Bodies that are no declaration

HOSTILE: dict[str, tuple[bytes, tuple[int, str]]] = {
    "empty": (b"", (400, "INVALID_REQUEST")),
    "no JSON": (b"{", (400, "MALFORMED_JSON")),
    "an unclosed text": (b'{"filename": "', (400, "MALFORMED_JSON")),
    "no UTF-8": (b'{"filename": "\xff\xfe"}', (400, "MALFORMED_JSON")),
    "not a number": (b'{"bytes_len": NaN}', (400, "MALFORMED_JSON")),
    "an infinite number": (b'{"bytes_len": -Infinity}', (400, "MALFORMED_JSON")),
    "a number of 10,000 digits": (b'{"bytes_len": ' + b"9" * 10_000 + b"}", (400, "MALFORMED_JSON")),
    "deep arrays": (b"[" * 100_000, (400, "MALFORMED_JSON")),
    "deep closed arrays": (b"[" * 100_000 + b"]" * 100_000, (400, "MALFORMED_JSON")),
    "deep objects": (b'{"a":' * 40_000 + b"1" + b"}" * 40_000, (400, "MALFORMED_JSON")),
    "an array": (b"[]", (400, "INVALID_REQUEST")),
    "an array of declarations": (json.dumps([upload_request(PDF)]).encode(), (400, "INVALID_REQUEST")),
    "nothing": (b"null", (400, "INVALID_REQUEST")),
    "a text": (b'"plan.pdf"', (400, "INVALID_REQUEST")),
    "a number": (b"7", (400, "INVALID_REQUEST")),
    "an empty object": (b"{}", (400, "INVALID_REQUEST")),
    "a lone surrogate": (
        json.dumps(upload_request(PDF) | {"filename": "\ud800.pdf"}).encode(),
        (400, "INVALID_REQUEST"),
    ),
    "a megabyte": (json.dumps(upload_request(PDF) | {"more": "x" * 1_000_000}).encode(), (413, "BODY_TOO_LARGE")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_a_client_error_in_the_one_shape(name: str, ana: Person) -> None:
    body, expected = HOSTILE[name]

    for path in ("/upload", "/search"):
        answer = ana.client.post(path, body, content_type="application/json")
        assert error_of(answer)[:2] == expected
    assert not Document.objects.exists()


@pytest.mark.parametrize("field", ["filename", "bytes_len", "mime", "sha256"])
def test_a_missing_field_is_named(field: str, ana: Person) -> None:
    body = {name: value for name, value in upload_request(PDF).items() if name != field}

    assert error_of(ana.post("/upload", body)) == (400, "INVALID_REQUEST", field)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_another_kind_of_body_is_refused(kind: str, ana: Person) -> None:
    answer = ana.client.post("/upload", json.dumps(upload_request(PDF)), content_type=kind)

    assert error_of(answer) == (415, "UNSUPPORTED_MEDIA_TYPE", None)


def test_unknown_fields_are_ignored(ana: Person) -> None:
    assert ana.request_upload(PDF, user_id="6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42", document_id="x").status_code == 200
    assert Document.objects.get().user_id == ana.id


def test_two_uploads_run_at_once_and_a_third_waits(ana: Person) -> None:
    for subject in ("drugs", "dental", "hospital"):
        ana.upload(plan_pdf(subject))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE upload_jobs SET state = 'working', claim_token = gen_random_uuid(), claimed_at = now(),"
            " lease_until = now() + interval '1 minute', slot = n.slot FROM (SELECT job_id, row_number() OVER () - 1"
            " AS slot FROM upload_jobs LIMIT 2) n WHERE n.job_id = upload_jobs.job_id"
        )

    assert worker.drain() == 0

    standing = [job["standing"] for job in ana.get("/jobs").json()["results"]]
    assert sorted(standing) == ["starved", "working", "working"]


def test_a_document_over_the_page_limit_says_so(ana: Person, settings: Any) -> None:
    settings.MAX_PAGES = 2

    refused = ana.ingest(text_pdf("one", "two", "three"))

    assert refused.failure == "TOO_MANY_PAGES"
    assert (refused.job.last_error or {})["detail"] == "The PDF has 3 pages; the limit is 2. Upload it in parts."
    assert "more than 2 pages" in str(error_codes.TOO_MANY_PAGES.tenant_message)
    make_parked_jobs_due()
    assert ana.ingest(text_pdf("one", "two")).job.state == "done"


@pytest.mark.slow
def test_a_deployment_that_allows_a_thousand_pages_reads_and_shows_them_all(ana: Person, settings: Any) -> None:
    settings.MAX_PAGES = 1000
    codes = [f"code-{number * 7919 % 10_007}" for number in range(1000)]  # no page number: those are removed

    uploaded = ana.ingest(text_pdf(*(f"A visit under {code} costs nothing." for code in codes)))

    job = ana.get(f"/jobs/{uploaded.document_id}").json()
    assert (job["state"], job["progress"]["pages_total"], job["progress"]["pages_done"]) == ("done", 1000, 1000)
    last = DocumentChunk.objects.filter(document_id=uploaded.document_id).order_by("chunk_ord").last()
    assert last is not None
    assert (codes[-1] in last.text, (last.meta or {})["pages"][1]) == (True, 1000)
    image = ana.get(f"/documents/{uploaded.document_id}/pages/1000")
    assert (image.status_code, image["content-type"]) == (200, "image/jpeg")
