"""S3 client: missing objects and buckets, size limits, and a store that is away."""

import errno
from pathlib import Path
from typing import Any

import pytest

from statutes.s3 import client as objects
from statutes.tests.artifact_factories import BUCKET, InterruptibleS3Server
from testing.fakes.faults import FAULTS, http_error

pytestmark = pytest.mark.usefixtures("s3")
RAW = "raw/federal/2024/ley del IVA ñ+%.pdf"


def test_a_raw_file_has_a_head_and_is_downloaded(s3: InterruptibleS3Server, tmp_path: Path) -> None:
    client = s3.client()
    client.put_object(Bucket=BUCKET, Key=RAW, Body=b"%PDF-", Tagging="document_id=IVA&scan=clean")
    client.close()

    head = objects.head_object(BUCKET, RAW)
    size = objects.download_object(BUCKET, RAW, tmp_path / "raw", etag=head.etag)

    assert (head.size, size, (tmp_path / "raw").read_bytes()) == (5, 5, b"%PDF-")
    assert head.tags == {"document_id": "IVA", "scan": "clean"}


def test_a_store_without_tags_gives_no_tags(s3: InterruptibleS3Server) -> None:
    objects.put_object(BUCKET, RAW, b"x")
    s3.inject_fault("GET /laws/*", http_error(501, code="NotImplemented"), times=5)

    assert objects.head_object(BUCKET, RAW).tags is None


def test_an_object_changed_after_its_head_is_not_downloaded(tmp_path: Path) -> None:
    objects.put_object(BUCKET, RAW, b"one")
    head = objects.head_object(BUCKET, RAW)
    objects.put_object(BUCKET, RAW, b"two")

    with pytest.raises(OSError, match="cannot be reached"):
        objects.download_object(BUCKET, RAW, tmp_path / "raw", etag=head.etag)


def test_a_missing_object_differs_from_a_missing_bucket(tmp_path: Path) -> None:
    for read in (
        lambda: objects.head_object(BUCKET, "no"),
        lambda: objects.download_object(BUCKET, "no", tmp_path / "x"),
    ):
        with pytest.raises(FileNotFoundError):
            read()
    for away in (
        lambda: objects.head_object("nowhere", "no"),
        lambda: objects.read_object("nowhere", "no"),
        lambda: objects.put_object("nowhere", "no", b""),
        lambda: list(objects.list_keys("nowhere", "")),
    ):
        with pytest.raises(OSError, match=r"bucket|reached") as caught:
            away()
        assert caught.value.errno == errno.ENOTCONN


def test_an_object_above_the_limit_is_not_downloaded(settings: Any, tmp_path: Path) -> None:
    objects.put_object(BUCKET, RAW, b"x" * 11)
    settings.STATUTES_MAX_BYTES = 10

    with pytest.raises(objects.ObjectTooLarge):
        objects.download_object(BUCKET, RAW, tmp_path / "raw")
    with pytest.raises(objects.ObjectTooLarge):
        objects.read_object(BUCKET, RAW)


@pytest.mark.parametrize("kind", ["reset", "html-200", "status-403"])
def test_store_errors_are_OSErrors_without_object_names(
    kind: str, s3: InterruptibleS3Server, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    objects.put_object(BUCKET, RAW, b"x")
    s3.inject_fault("GET *", FAULTS[kind], times=5)

    with pytest.raises(OSError, match=r"reached|allow|no S3") as caught:
        objects.download_object(BUCKET, RAW, tmp_path / "raw")

    assert not isinstance(caught.value, (FileNotFoundError, TimeoutError))
    assert "raw/federal" not in f"{caught.value}{caplog.text}"


def test_every_page_of_a_listing_is_read(s3: InterruptibleS3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        objects.put_object(BUCKET, f"chunks/A/{number}", b"")
    objects.put_object(BUCKET, "chunks/AB/0", b"")
    monkeypatch.setattr("documents.storage.s3.LIST_PAGE_SIZE", 2)

    assert list(objects.list_keys(BUCKET, "chunks/A/")) == [f"chunks/A/{number}" for number in range(5)]


def test_the_documents_credentials_are_used_in_a_shared_store(
    s3: InterruptibleS3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    settings.S3_ENDPOINT_URL, settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY = s3.url, "own", "secret"
    settings.S3_REGION = "us-west-2"  # a client that was not made before

    objects.put_object(BUCKET, RAW, b"x")

    assert objects.read_object(BUCKET, RAW) == b"x"
