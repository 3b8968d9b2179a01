"""Signed URLs over a real server and real sockets: exactly the declared bytes, once signed, for a few minutes."""

import errno
import hashlib
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest
import requests
from django.core import signing
from django.core.files.storage import storages

from documents.models import Document
from documents.storage import buckets
from jobs import worker
from jobs.models import UploadJob
from testing.personas import Person, plan_pdf, upload_request

PDF = plan_pdf("drugs")
TYPE = {"Content-Type": "application/pdf"}
PDF_TO = "Content-Type: application/pdf\r\nHost: "
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ana(live_server: Any, settings: Any, ana: Person) -> Person:
    settings.PUBLIC_URL = live_server.url
    return ana


@pytest.fixture
def url(ana: Person) -> str:
    return str(ana.request_upload(PDF).json()["signed_url"])


def code(answer: requests.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) <= {"code", "detail", "field"}
    return answer.status_code, body["code"]


def stored_names() -> list[str]:
    return [name for bucket in ("raw", "parsed") for name in storages[bucket].names()]  # type: ignore[attr-defined]


def incoming_files(settings: Any) -> list[Path]:
    """Files of uploads that did not end, once the server has had time to notice."""
    folder = Path(settings.STORAGE_ROOT, "raw", buckets.INCOMING)
    for _ in range(100):
        if not (files := list(folder.glob("*"))):
            return []
        time.sleep(0.02)
    return files


def by_socket(url: str, head: str, body: bytes = b"", *, hang_up: bool = False) -> bytes:
    """Send a request as it is written here; return what comes back."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as wire:
        wire.sendall(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\n{PDF_TO}{parts.netloc}\r\n{head}\r\n".encode() + body)
        if hang_up:
            wire.shutdown(socket.SHUT_WR)
        wire.settimeout(10)
        received = b""
        while part := wire.recv(65536):
            received += part
            if b"\r\n\r\n" in received and b"Connection: close" not in received:
                break
        return received


def changed(url: str, **query: str) -> str:
    parts = urlsplit(url)
    terms = {name: values[0] for name, values in parse_qs(parts.query).items()} | query
    return urlunsplit(parts._replace(query=urlencode(terms)))


# Good bytes


def test_the_declared_bytes_arrive_whole_and_wake_the_job(url: str, ana: Person) -> None:
    worker.drain()
    assert UploadJob.objects.get().wait_reason == "WAITING_FOR_UPLOAD"

    assert requests.put(url, PDF, headers=TYPE, timeout=10).status_code == 200

    document = Document.objects.get()
    bucket, name = buckets.locate(document.raw_path)
    assert bucket.read(name) == PDF
    job = UploadJob.objects.get()
    assert (job.state, job.run_after, job.wait_reason) == ("queued", None, None)


def test_the_same_bytes_may_be_put_again(url: str, settings: Any) -> None:
    for _ in range(2):
        assert requests.put(url, PDF, headers=TYPE, timeout=10).status_code == 200

    assert len(stored_names()) == 1
    assert incoming_files(settings) == []


def test_no_content_type_is_taken_for_the_declared_one(url: str, ana: Person) -> None:
    assert ana.client.put(url, PDF, content_type="").status_code == 200


def test_putting_again_after_the_end_changes_nothing(url: str) -> None:
    requests.put(url, PDF, headers=TYPE, timeout=10)
    worker.drain()
    before = UploadJob.objects.values().get()

    assert requests.put(url, PDF, headers=TYPE, timeout=10).status_code == 200
    assert UploadJob.objects.values().get() == before
    assert before["state"] == "done"


class Endless:
    """So many bytes, made as they are read."""

    def __init__(self, length: int) -> None:
        self.left = length

    def __len__(self) -> int:
        return self.left

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read():
            yield piece

    def read(self, size: int = -1) -> bytes:
        length = min(self.left, 65536 if size < 0 else size)
        self.left -= length
        return b"x" * length


def test_twenty_five_megabytes_are_never_in_memory_at_once(ana: Person, settings: Any) -> None:
    length = settings.MAX_FILE_BYTES
    digest = hashlib.sha256()
    source = Endless(length)
    while piece := source.read(1 << 20):
        digest.update(piece)
    body = upload_request(b"") | {"bytes_len": length, "sha256": digest.hexdigest()}
    url = ana.post("/upload", body).json()["signed_url"]

    tracemalloc.start()
    answer = requests.put(url, Endless(length), headers=TYPE, timeout=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert answer.status_code == 200, answer.text
    assert peak < 4 << 20


# Other bytes


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (PDF + b"x", (422, "LENGTH_MISMATCH")),
        (PDF[:-1], (422, "LENGTH_MISMATCH")),
        (b"", (422, "LENGTH_MISMATCH")),
        (PDF[:-1] + b"x", (422, "HASH_MISMATCH")),
    ],
)
def test_bytes_other_than_declared_are_refused_and_not_stored(
    body: bytes, expected: tuple[int, str], url: str, settings: Any
) -> None:
    assert code(requests.put(url, body, headers=TYPE, timeout=10)) == expected
    assert (stored_names(), incoming_files(settings)) == ([], [])


@pytest.mark.parametrize("kind", ["image/png", "text/html", "application/json"])
def test_another_type_is_refused(kind: str, url: str) -> None:
    assert code(requests.put(url, PDF, headers={"Content-Type": kind}, timeout=10)) == (415, "TYPE_MISMATCH")


def test_a_body_of_unknown_length_is_refused(url: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield PDF

    assert code(requests.put(url, pieces(), headers=TYPE, timeout=10)) == (411, "LENGTH_REQUIRED")


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "", "\xb2"])
def test_a_length_that_is_no_number_is_a_client_error(length: str, url: str) -> None:
    status = by_socket(url, f"Content-Length: {length}\r\nConnection: close\r\n", hang_up=True).split()[1]

    assert status in (b"400", b"411", b"422")


def test_a_connection_that_breaks_off_leaves_no_file(url: str, settings: Any) -> None:
    answer = by_socket(url, f"Content-Length: {len(PDF)}\r\nConnection: close\r\n", PDF[:3000], hang_up=True)

    assert answer.split()[1] in (b"400", b"422")
    assert (stored_names(), incoming_files(settings)) == ([], [])


def test_bytes_beyond_the_declared_length_are_not_read(url: str) -> None:
    by_socket(url, f"Content-Length: {len(PDF)}\r\nConnection: close\r\n", PDF + b"more of it")

    bucket, name = buckets.locate(Document.objects.get().raw_path)
    assert bucket.read(name) == PDF


# URLs that were not signed for this


def test_an_expired_url_is_refused(url: str, settings: Any) -> None:
    settings.SIGNED_URL_SECONDS = 0
    time.sleep(0.01)

    assert code(requests.put(url, PDF, headers=TYPE, timeout=10)) == (403, "URL_EXPIRED")
    assert stored_names() == []


def test_a_token_cannot_be_altered(url: str) -> None:
    token = parse_qs(urlsplit(url).query)["token"][0]
    altered = [token[:-1] + ("A" if token[-1] != "A" else "B"), "x" + token[1:], "", "garbage", "é:é:é", token + "A"]
    altered += [signing.dumps({"method": "PUT"}, salt="another"), ":".join(token.split(":")[:2])]

    for forged in altered:
        assert code(requests.put(changed(url, token=forged), PDF, headers=TYPE, timeout=10)) == (403, "URL_NOT_VALID")
    assert code(requests.put(url.partition("?")[0], PDF, timeout=10)) == (403, "URL_NOT_VALID")


def test_a_token_is_for_one_name_in_one_bucket(url: str, ana: Person, ben: Person) -> None:
    bens = str(ben.request_upload(PDF).json()["signed_url"])
    token = {"token": parse_qs(urlsplit(url).query)["token"][0]}

    for other in (changed(bens, **token), changed(url.replace("/raw/", "/parsed/"), **token)):
        assert code(requests.put(other, PDF, headers=TYPE, timeout=10)) == (403, "URL_NOT_VALID")
    for elsewhere in ("/storage/raw/../../etc/passwd", "/storage/default/x", "/storage/staticfiles/x"):
        parts = urlsplit(changed(url, **token))._replace(path=elsewhere)
        assert requests.put(urlunsplit(parts), PDF, headers=TYPE, timeout=10).status_code in (403, 404)
    assert stored_names() == []


def test_an_upload_url_cannot_download_nor_a_download_url_upload(url: str, ana: Person) -> None:
    requests.put(url, PDF, headers=TYPE, timeout=10)
    worker.drain()
    document = Document.objects.get()
    link = ana.get(f"/documents/{document.pk}/original").json()["signed_url"]

    assert code(requests.get(url, timeout=10)) == (403, "URL_NOT_VALID")
    assert code(requests.put(link, PDF, headers=TYPE, timeout=10)) == (403, "URL_NOT_VALID")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH"])
def test_other_methods_are_refused_in_the_one_shape(method: str, url: str) -> None:
    answer = requests.request(method, url, timeout=10)

    assert code(answer) == (405, "METHOD_NOT_ALLOWED")
    assert "PUT" in answer.headers["Allow"]


def test_the_upload_url_of_a_deleted_document_is_refused(url: str, ana: Person, settings: Any) -> None:
    requests.put(url, PDF, headers=TYPE, timeout=10)
    ana.delete(f"/documents/{Document.objects.get().pk}")

    assert code(requests.put(url, PDF, headers=TYPE, timeout=10)) == (404, "NOT_FOUND")
    assert (stored_names(), incoming_files(settings)) == ([], [])


def test_an_upload_during_deletion_leaves_no_orphan(url: str, ana: Person, settings: Any) -> None:
    document = Document.objects.get()
    answers: list[bytes] = []
    half = len(PDF) // 2
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as wire:
        head = (
            f"PUT {parts.path}?{parts.query} HTTP/1.1\r\n{PDF_TO}{parts.netloc}\r\nContent-Length: {len(PDF)}\r\n\r\n"
        )
        wire.sendall(head.encode() + PDF[:half])
        assert ana.delete(f"/documents/{document.pk}").status_code == 204
        wire.sendall(PDF[half:])
        answers.append(wire.recv(65536))

    assert answers[0].split()[1] == b"404"
    assert (stored_names(), incoming_files(settings)) == ([], [])


# A full disk


def full_disk(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_507_with_retry_after(url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)

    answer = requests.put(url, PDF, headers=TYPE, timeout=10)

    assert code(answer) == (507, "INSUFFICIENT_STORAGE")
    assert int(answer.headers["Retry-After"]) > 0
    assert (stored_names(), incoming_files(settings)) == ([], [])
    monkeypatch.undo()
    assert requests.put(url, PDF, headers=TYPE, timeout=10).status_code == 200


def test_an_unavailable_store_is_not_the_clients_fault(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "replace", away)

    answer = requests.put(url, PDF, headers=TYPE, timeout=10)

    assert code(answer) == (503, "STORAGE_UNAVAILABLE")
    assert "Retry-After" in answer.headers


# Downloads


def test_a_download_is_a_file_and_never_a_page(url: str, ana: Person) -> None:
    requests.put(url, PDF, headers=TYPE, timeout=10)
    worker.drain()
    document = Document.objects.get()
    original = ana.get(f"/documents/{document.pk}/original").json()
    parsed = ana.get(f"/documents/{document.pk}/parsed").json()

    assert original["expires_in"] == 300
    for link, name in ((original, "plan.pdf"), (parsed, "plan.md")):
        answer = requests.get(link["signed_url"], timeout=10)
        assert answer.status_code == 200
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        assert "no-store" in answer.headers["Cache-Control"]
    assert requests.get(original["signed_url"], timeout=10).content == PDF
    text = requests.get(parsed["signed_url"], timeout=10).content
    assert hashlib.sha256(text).hexdigest() == document.parsed_sha256


def test_there_is_no_link_before_the_upload(url: str, ana: Person) -> None:
    document = Document.objects.get()

    for what in ("original", "parsed"):
        answer = ana.get(f"/documents/{document.pk}/{what}")
        assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")


def test_a_link_to_a_deleted_file_is_404(url: str, ana: Person) -> None:
    requests.put(url, PDF, headers=TYPE, timeout=10)
    worker.drain()
    document = Document.objects.get()
    link = ana.get(f"/documents/{document.pk}/original").json()["signed_url"]
    ana.delete(f"/documents/{document.pk}")

    assert code(requests.get(link, timeout=10)) == (404, "NOT_FOUND")


@pytest.mark.slow
def test_concurrent_uploads_do_not_interfere(ana: Person) -> None:
    contents = [plan_pdf(f"care of kind {number}") for number in range(4)]
    urls = [ana.request_upload(content).json()["signed_url"] for content in contents]
    codes: list[int] = []

    def put(number: int) -> None:
        codes.append(requests.put(urls[number], contents[number], headers=TYPE, timeout=20).status_code)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert codes == [200] * 4
    assert len(stored_names()) == 4


def test_a_bucket_follows_the_root_of_the_store(store: None, settings: Any, tmp_path: Path) -> None:
    bucket: Any = storages["raw"]
    bucket.put("tenant/one.pdf", b"one")

    settings.STORAGE_ROOT = tmp_path / "elsewhere"
    bucket.put("tenant/two.pdf", b"two")

    assert list(bucket.names()) == ["tenant/two.pdf"]
    assert (tmp_path / "elsewhere" / "raw" / "tenant" / "two.pdf").read_bytes() == b"two"
