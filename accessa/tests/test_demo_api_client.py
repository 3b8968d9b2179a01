"""Headers of the demo client's uploads."""

from typing import Any

from accessa.demo.api_client import upload_headers

SHA256 = "00" * 32
CHECKSUM = {"x-amz-checksum-sha256": "A" * 43 + "="}
TYPE = {"content-type": "application/pdf"}


def s3(*signed: str) -> str:
    return "https://s3.example/raw/a.pdf?X-Amz-SignedHeaders=" + "%3B".join(["content-length", "host", *signed])


def test_our_own_urls_get_the_type_and_the_checksum() -> None:
    assert upload_headers("http://127.0.0.1/storage/raw/a.pdf?token=x", SHA256) == TYPE | CHECKSUM


def test_an_s3_gets_exactly_what_it_signed(settings: Any) -> None:
    settings.S3_ENCRYPTION = "AES256"

    assert upload_headers(s3(*TYPE), SHA256) == TYPE
    assert upload_headers(s3(*TYPE, *CHECKSUM), SHA256) == TYPE | CHECKSUM
    encrypted = upload_headers(s3(*TYPE, *CHECKSUM, "x-amz-server-side-encryption"), SHA256)
    assert encrypted == TYPE | CHECKSUM | {"x-amz-server-side-encryption": "AES256"}
