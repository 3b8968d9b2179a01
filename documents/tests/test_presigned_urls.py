"""Presigned URLs against a server that checks signatures, and secrets that no URL may contain."""

import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest
import requests
from django.core.files.storage import storages

from documents.models import Document
from documents.storage.s3 import S3Bucket
from documents.tests.s3_settings import use_s3_storage
from jobs import worker
from testing.fakes.s3 import S3Server
from testing.personas import Person, plan_pdf

PDF = plan_pdf("drugs")
OTHER = PDF[:-1] + b"x"
SERVICE_ROLE = "service-role-key-canary"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def strict() -> Iterator[S3Server]:
    with S3Server(strict=True) as server:
        yield server


@pytest.fixture(scope="module")
def lenient() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(strict: S3Server, settings: Any) -> Iterator[S3Server]:
    use_s3_storage(settings, strict)
    yield strict
    empty()


def empty() -> None:
    for bucket in buckets():
        for name in bucket.names():
            bucket.delete(name)


def buckets() -> list[S3Bucket]:
    stores = [storages["raw"], storages["parsed"]]
    return [bucket for bucket in stores if isinstance(bucket, S3Bucket)]


def stored_names() -> list[str]:
    return [name for bucket in buckets() for name in bucket.names()]


def sha256_base64(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def headers(content: bytes = PDF, **changed: str) -> dict[str, str]:
    return {"Content-Type": "application/pdf", "x-amz-checksum-sha256": sha256_base64(content)} | changed


def put(url: str, content: bytes, extra: dict[str, str]) -> int:
    return requests.put(url, content, headers=extra, timeout=10).status_code


def signed_url(person: Person, content: bytes = PDF) -> str:
    return str(person.request_upload(content).json()["signed_url"])


# Uploads


@pytest.mark.slow
def test_the_declared_bytes_are_accepted(s3: S3Server, ana: Person) -> None:
    assert put(signed_url(ana), PDF, headers()) == 200

    worker.drain()
    assert Document.objects.get().stored_at is not None


# ministack looks at a checksum only where an SDK names its algorithm; S3 always does.
NAMED = {"x-amz-sdk-checksum-algorithm": "SHA256"}
WRONG: dict[str, tuple[bytes, dict[str, str], int]] = {
    "longer": (PDF + b"x", headers(), 403),
    "shorter": (PDF[:-1], headers(), 403),
    "another type": (PDF, headers() | {"Content-Type": "text/html"}, 403),
    "no type": (PDF, {"x-amz-checksum-sha256": sha256_base64(PDF)}, 403),
    "no sha256": (PDF, {"Content-Type": "application/pdf"}, 403),
    "other bytes under the declared sha256": (OTHER, headers() | NAMED, 400),
    "other bytes under their own sha256": (OTHER, headers(OTHER), 403),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_anything_else_is_refused_and_nothing_is_stored(what: str, s3: S3Server, ana: Person) -> None:
    content, extra, status = WRONG[what]

    assert put(signed_url(ana), content, extra) == status

    assert stored_names() == []


@pytest.mark.slow
def test_a_url_ends_after_its_seconds(s3: S3Server, ana: Person, settings: Any) -> None:
    assert parse_qs(urlsplit(signed_url(ana)).query)["X-Amz-Expires"] == ["300"]

    settings.SIGNED_URL_SECONDS = 1
    url = signed_url(ana)
    time.sleep(2.1)

    assert put(url, PDF, headers()) == 403
    assert stored_names() == []


@pytest.mark.parametrize("term", ["X-Amz-Expires", "X-Amz-Date", "X-Amz-Signature", "X-Amz-SignedHeaders"])
def test_an_altered_url_is_refused(term: str, s3: S3Server, ana: Person) -> None:
    other = {"X-Amz-Expires": "86400", "X-Amz-Date": "20261122T000000Z", "X-Amz-SignedHeaders": "host"}
    parts = urlsplit(signed_url(ana))
    terms = {name: values[0] for name, values in parse_qs(parts.query).items()}
    terms[term] = other.get(term) or terms[term][:-1] + ("0" if terms[term][-1] != "0" else "1")

    assert put(urlunsplit(parts._replace(query=urlencode(terms))), PDF, headers()) in (400, 403)

    assert stored_names() == []


def test_a_url_is_for_one_tenants_one_name(s3: S3Server, ana: Person, ben: Person) -> None:
    anas, bens = signed_url(ana), signed_url(ben)
    query = urlsplit(anas).query

    for elsewhere in (urlsplit(bens).path, urlsplit(anas).path.replace("/raw/", "/parsed/"), "/raw/x.pdf"):
        assert put(urlunsplit(urlsplit(anas)._replace(path=elsewhere, query=query)), PDF, headers()) == 403
    assert requests.get(anas, timeout=10).status_code == 403
    assert stored_names() == []


def test_a_store_without_checksums_still_fixes_length_and_type(s3: S3Server, ana: Person, settings: Any) -> None:
    settings.S3_SIGN_SHA256 = False
    extra = {"Content-Type": "application/pdf"}

    url = signed_url(ana)

    assert put(url, PDF + b"x", extra) == 403
    assert put(url, PDF, extra | {"Content-Type": "text/html"}) == 403
    assert put(url, PDF, extra) == 200


@pytest.mark.slow
def test_downloads_are_for_one_name_and_a_few_minutes(s3: S3Server, ana: Person) -> None:
    put(signed_url(ana), PDF, headers())
    worker.drain()
    link = ana.get(f"/documents/{Document.objects.get().pk}/original").json()["signed_url"]

    assert requests.get(link, timeout=10).content == PDF
    assert requests.get(link.replace("attachment", "inline"), timeout=10).status_code == 403
    assert requests.get(link.replace("/raw/", "/parsed/"), timeout=10).status_code == 403
    assert put(link, PDF, headers()) == 403


# Where presigning would give the key away


@pytest.fixture
def supabase(lenient: S3Server, settings: Any, live_server: Any) -> Iterator[S3Server]:
    """Supabase's session token mode, with somebody's wish to presign all the same."""
    settings.PUBLIC_URL = live_server.url
    use_s3_storage(settings, lenient, S3_SESSION_TOKEN=SERVICE_ROLE, S3_PRESIGN=True)
    yield lenient
    empty()


def test_no_url_ever_holds_a_session_token(supabase: S3Server, ana: Person, live_server: Any) -> None:
    raw, parsed = buckets()
    urls = [
        signed_url(ana),
        raw.sign_download("a/b.pdf", filename="b.pdf"),
        parsed.sign_download("a/b.md", filename="b"),
    ]
    urls += [
        raw.sign_download("a/b.pdf", filename="b.pdf"),
        raw.sign_upload("a/b.pdf", length=1, mime="application/pdf", sha256="0" * 64),
    ]

    for url in urls:
        assert url.startswith(f"{live_server.url}/storage/")
        assert SERVICE_ROLE not in url
        assert "Token" not in url


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["supabase", "S3_PRESIGN=false"])
def test_uploads_without_presigned_urls_go_through_this_project(
    mode: str, supabase: S3Server, ana: Person, ben: Person, settings: Any
) -> None:
    if mode != "supabase":
        use_s3_storage(settings, supabase, S3_PRESIGN=False)
    url = signed_url(ana)

    assert requests.put(url, OTHER, headers=headers(), timeout=10).json()["code"] == "HASH_MISMATCH"
    assert requests.put(url, PDF + b"x", headers=headers(), timeout=10).json()["code"] == "LENGTH_MISMATCH"
    assert stored_names() == []
    assert put(url, PDF, headers()) == 200

    worker.drain()
    document = Document.objects.get()
    assert document.stored_at is not None
    link = ana.get(f"/documents/{document.pk}/original").json()["signed_url"]
    answer = requests.get(link, timeout=10)
    assert answer.content == PDF
    assert answer.headers["Content-Length"] == str(len(PDF))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="plan.pdf"'
    assert "no-store" in answer.headers["Cache-Control"]
    assert nothing_left()


def nothing_left() -> bool:
    """Wait for the server to close what it sent."""
    for _ in range(100):
        if not list(buckets()[0].incoming().iterdir()):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
def test_an_unavailable_store_is_reported_to_uploads_and_downloads(supabase: S3Server, ana: Person) -> None:
    url = signed_url(ana)
    supabase.inject_fault("*", "status-503", times=100)

    sent = requests.put(url, PDF, headers=headers(), timeout=30)
    fetched = requests.get(buckets()[0].sign_download("a/b.pdf", filename="b.pdf"), timeout=30)
    supabase.clear_faults()

    for answer in (sent, fetched):
        assert (answer.status_code, answer.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
        assert int(answer.headers["Retry-After"]) > 0
    assert requests.get(buckets()[0].sign_download("a/b.pdf", filename="b.pdf"), timeout=10).status_code == 404
    assert put(url, PDF, headers()) == 200
