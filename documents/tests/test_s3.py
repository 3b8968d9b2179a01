"""S3 storage end to end; a store that is unavailable, full or misconfigured; and what is never logged.

The server is moto's, which checks no signature: test_presigned_urls runs against another.
"""

import base64
import errno
import hashlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from botocore.exceptions import ClientError
from django.core.files.storage import storages

from accessa.integrity.violations import find_violations
from documents import services
from documents.markdown.normalization import normalize_pages
from documents.models import Document
from documents.storage import buckets
from documents.storage.s3 import S3Bucket, map_s3_errors
from documents.tests.s3_settings import use_s3_storage
from jobs import worker
from jobs.infrastructure_errors import infrastructure_wait
from jobs.models import UploadJob
from testing.fakes.faults import faults_for
from testing.fakes.s3 import S3Server
from testing.personas import Person, Upload, make_parked_jobs_due, plan_pdf, run_all_jobs

PDF = plan_pdf("drugs")
NAME = "6f1c/9a2b.pdf"
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(server: S3Server, settings: Any) -> Iterator[S3Server]:
    use_s3_storage(settings, server)
    yield server
    server.clear_faults()
    for bucket in (raw(), parsed()):
        for name in bucket.names():
            bucket.delete(name)


def raw() -> S3Bucket:
    bucket = storages["raw"]
    assert isinstance(bucket, S3Bucket)
    return bucket


def parsed() -> S3Bucket:
    bucket = storages["parsed"]
    assert isinstance(bucket, S3Bucket)
    return bucket


def stored_names() -> list[str]:
    return [*raw().names(), *parsed().names()]


def declare_upload(person: Person, content: bytes = PDF) -> tuple[Upload, str]:
    answer = person.request_upload(content).json()
    return Upload(answer["job_id"], answer["document_id"]), answer["signed_url"]


def put(url: str, content: bytes = PDF) -> int:
    sha256 = base64.b64encode(hashlib.sha256(content).digest()).decode()
    headers = {"Content-Type": "application/pdf", "x-amz-checksum-sha256": sha256}
    return requests.put(url, content, headers=headers, timeout=10).status_code


def wait_state() -> tuple[str, str, str | None, int]:
    job = UploadJob.objects.get()
    return job.stage, job.state, job.wait_reason, job.attempts


# The whole way


def test_a_document_is_ingested_through_an_s3_bucket(s3: S3Server, ana: Person) -> None:
    upload, url = declare_upload(ana)
    assert url.startswith(f"{s3.url}/raw/{ana.id}/{upload.document_id}.pdf?")
    worker.drain()
    assert wait_state() == ("queued", "queued", "WAITING_FOR_UPLOAD", 0)

    assert put(url) == 200
    run_all_jobs(1)

    assert upload.job.state == "done"
    assert stored_names() == [f"{ana.id}/{upload.document_id}.{kind}" for kind in ("pdf", "md")]
    assert ana.post("/search", {"query": "drugs deductible", "k": 3}).json()["passages"]
    for what, start in (("original", b"%PDF"), ("parsed", b"")):
        link = ana.get(f"/documents/{upload.document_id}/{what}").json()["signed_url"]
        answer = requests.get(link, timeout=10)
        assert answer.content.startswith(start)
        assert "attachment" in answer.headers["Content-Disposition"]
        assert "private" in answer.headers["Cache-Control"]
    assert list(find_violations(deep=True)) == []

    assert ana.delete(f"/documents/{upload.document_id}").status_code == 204
    assert stored_names() == []


def test_a_job_polls_every_two_seconds_for_its_presigned_upload(s3: S3Server, ana: Person) -> None:
    upload, _ = declare_upload(ana)

    worker.drain()

    job = upload.job
    assert job.run_after is not None
    assert 0 < (job.run_after - job.updated_at).total_seconds() <= 2.1


@pytest.mark.slow
def test_bytes_that_were_sent_from_this_side_are_the_same(s3: S3Server, ana: Person, settings: Any) -> None:
    upload, _ = declare_upload(ana)

    services.store_upload(Document.objects.get(), [PDF[:100], PDF[100:]])

    assert raw().read(f"{ana.id}/{upload.document_id}.pdf") == PDF
    assert list(raw().incoming().iterdir()) == []
    with pytest.raises(buckets.UploadRejected, match="HASH_MISMATCH"):
        services.store_upload(Document.objects.get(), [PDF[:-1] + b"x"])
    assert list(raw().incoming().iterdir()) == []


def test_other_bytes_in_the_bucket_are_refused_and_removed(s3: S3Server, ana: Person) -> None:
    upload, _ = declare_upload(ana)
    raw().put(f"{ana.id}/{upload.document_id}.pdf", PDF[:-1] + b"x")

    worker.drain()

    assert upload.failure == "HASH_MISMATCH"
    assert stored_names() == []


# What a bucket is asked for


def test_objects_are_written_read_listed_and_deleted(s3: S3Server) -> None:
    bucket = raw()
    assert not bucket.exists(NAME)

    bucket.put(NAME, b"one")
    bucket.put(NAME, b"three")

    assert (bucket.exists(NAME), bucket.size(NAME), bucket.read(NAME)) == (True, 5, b"three")
    with bucket.local_file(NAME) as path:
        assert path.read_bytes() == b"three"
    assert not path.exists()
    with bucket.open(NAME) as file:
        assert file.read() == b"three"
    assert list(bucket.incoming().iterdir()) == []
    assert list(bucket.names()) == [NAME]
    assert bucket.client.head_object(Bucket="raw", Key=NAME)["ContentType"] == "application/pdf"
    bucket.delete(NAME)
    bucket.delete(NAME)
    assert list(bucket.names()) == []


def test_a_missing_object_is_a_missing_file(s3: S3Server) -> None:
    for look in (raw().size, raw().open):
        with pytest.raises(FileNotFoundError):
            look(NAME)


@pytest.mark.slow
def test_a_404_for_an_existing_object_means_an_unavailable_store(s3: S3Server) -> None:
    with pytest.raises(OSError, match="reached"):
        raw().read(NAME)
    with pytest.raises(OSError, match="reached"), raw().local_file(NAME):
        pass


def test_names_are_listed_over_many_pages(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("documents.storage.s3.LIST_PAGE_SIZE", 3)
    names = [f"a/{number:04}.pdf" for number in range(7)]
    for name in names:
        raw().put(name, b"x")

    assert list(raw().names()) == names


def test_objects_are_encrypted_as_configured(s3: S3Server, settings: Any) -> None:
    settings.S3_ENCRYPTION, settings.S3_KMS_KEY_ID = "aws:kms", "key-7"

    raw().put(NAME, b"x")
    url = raw().sign_upload("b/c.pdf", length=1, mime="application/pdf", sha256="0" * 64)

    answer = raw().client.head_object(Bucket="raw", Key=NAME)
    assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"].split("/")[-1]) == ("aws:kms", "key-7")
    assert "x-amz-server-side-encryption%3Bx-amz-server-side-encryption-aws-kms-key-id" in url


def test_the_buckets_own_encryption_is_left_to_the_bucket(s3: S3Server, settings: Any) -> None:
    settings.S3_ENCRYPTION = "bucket-default"

    raw().put(NAME, b"x")
    url = raw().sign_upload("b/c.pdf", length=1, mime="application/pdf", sha256="0" * 64)

    assert raw().exists(NAME)
    assert "x-amz-server-side-encryption" not in url


@pytest.mark.parametrize("filename", ["plan.pdf", 'a"b\\c;.pdf', "Größe 保険.pdf", "a%20b&c=d.pdf", "x" * 120])
def test_any_file_name_survives_a_download(filename: str, s3: S3Server) -> None:
    raw().put(NAME, PDF)

    url = raw().sign_download(NAME, filename=filename)
    answer = requests.get(url, timeout=10)

    assert answer.content == PDF
    assert answer.headers["Content-Disposition"].startswith("attachment; filename")
    assert answer.headers["Content-Type"] == "application/pdf"
    assert "response-content-type=application%2Fpdf" in url


# A store that is away


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between the SDK's two tries."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.0)


def test_an_unavailable_store_costs_no_attempt_and_is_waited_for(s3: S3Server, ana: Person, quick: None) -> None:
    upload, url = declare_upload(ana)
    put(url)
    s3.refuse_connections()

    for _ in range(5):
        make_parked_jobs_due()
        worker.drain()
        assert wait_state() == ("queued", "queued", "STORAGE_UNAVAILABLE", 0)

    s3.open()
    run_all_jobs(1)
    assert upload.job.state == "done"


def test_a_store_that_fails_during_parsing_is_waited_for(
    s3: S3Server, ana: Person, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, url = declare_upload(ana)
    put(url)
    monkeypatch.setattr("documents.stages.normalize_pages", _closing(s3))

    worker.drain()

    assert wait_state() == ("parsing", "queued", "STORAGE_UNAVAILABLE", 0)
    monkeypatch.undo()
    s3.open()
    run_all_jobs(1)
    assert upload.job.state == "done"


def _closing(s3: S3Server) -> Any:
    def close_first(pages: Any) -> Any:
        s3.refuse_connections()
        return normalize_pages(pages)

    return close_first


@pytest.mark.parametrize("status", [500, 502, 503, 429, 403, 400, 507])
def test_each_s3_error_maps_to_one_os_error(status: int) -> None:
    response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": "Some", "Message": NAME}}

    with pytest.raises(OSError, match=r"space|reached|allow") as failed:
        _raised(response)

    assert failed.value.errno == (errno.ENOSPC if status == 507 else errno.ENOTCONN)
    assert NAME not in str(failed.value)


@pytest.mark.parametrize("code", ["QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"])
def test_a_full_bucket_is_a_full_disk(code: str) -> None:
    with pytest.raises(OSError, match="space") as failed:
        _raised({"ResponseMetadata": {"HTTPStatusCode": 400}, "Error": {"Code": code}})

    assert buckets.storage_error(failed.value).status == 507


def _raised(response: Any) -> None:
    with map_s3_errors():
        raise ClientError(response, "PutObject")


# Each fault at each call: the truth, or a store that is away; never a file that is none.

CALLS: dict[str, Any] = {
    "HEAD": lambda: raw().size(NAME),
    "GET": lambda: raw().read(NAME),
    "PUT": lambda: raw().put(NAME, PDF),
    "LIST": lambda: list(raw().names()),
}
TRUTH = {"HEAD": len(PDF), "GET": PDF, "PUT": None, "LIST": [NAME]}
# Half a file that says it is whole is nothing the transport can know: the sha256 of the next stage finds it.
LIES = {"truncated-json"}


@pytest.mark.slow
def test_no_fault_of_the_store_yields_a_wrong_file(
    server: S3Server, settings: Any, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("documents.storage.s3.READ_SECONDS", 0.3)
    use_s3_storage(settings, server)
    raw().put(NAME, PDF)

    for kind in sorted(set(faults_for("s3")) - LIES):
        for call in CALLS:
            server.clear_faults()
            server.inject_fault("GET *" if call == "LIST" else f"{call} *", kind, times=2)
            assert outcome(call) in ("true", "away", *(["missing"] if "404" in kind else [])), (kind, call)

    server.clear_faults()
    assert [outcome(call) for call in CALLS] == ["true"] * 4
    raw().delete(NAME)


def outcome(call: str) -> str:
    """Make a call and say what came of it."""
    try:
        answer = CALLS[call]()
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        known = buckets.storage_error(error).status in (503, 507) and infrastructure_wait(error)
        return "away" if known else repr(error)
    return "true" if answer == TRUTH[call] else repr(answer)


# What is written down


@pytest.mark.slow
def test_no_path_and_no_token_is_logged(
    s3: S3Server, ana: Person, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("django.db.backends").setLevel(logging.INFO)
    upload, url = declare_upload(ana)
    put(url)
    for kind in ("status-403", "status-500", "html-200", "reset"):
        s3.inject_fault("*", kind, times=2)
        make_parked_jobs_due()
        worker.drain()
        s3.clear_faults()
    run_all_jobs(1)
    ana.get(f"/documents/{upload.document_id}/original")
    ana.delete(f"/documents/{upload.document_id}")

    ours = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("urllib3"))
    assert stored_names() == []
    for line in ("The file store answers 403", "The file store is away", "Stage queued waits: STORAGE_UNAVAILABLE"):
        assert line in ours
    for canary in (f"{ana.id}/", "storage://", "X-Amz-Signature", ".pdf"):
        assert canary not in ours
