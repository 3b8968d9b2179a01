"""Each fault of an S3 at each call of the pipeline: the document waits, nothing is charged, no file is lost.

Each goes wrong twice in a row: the SDK asks once more by itself. The words are explained in ``fault_matrix.OUTCOMES``.
"""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import boto3
import pytest
import requests
from django.core.files.storage import storages
from django.db import connection

from accessa.tests import fault_matrix
from accessa.tests.fault_matrix import CANARY, MORE_KINDS, OUTCOMES, SLOW
from documents import periodic
from documents.models import Document
from documents.storage.s3 import S3Bucket
from documents.tests.s3_settings import use_s3_storage
from testing.fakes.faults import faults_for
from testing.fakes.s3 import S3Server
from testing.pdfs import text_pdf
from testing.personas import Person, Upload

pytestmark = pytest.mark.django_db
PDF = text_pdf(f"The plan pays 80 percent after the {CANARY} of 500 dollars.")

# head-raw, get-raw: is the upload there, and is it the one declared. put-text: the parsed markdown. head-text,
# get-text: its invariant. delete: a deleted document's original; "done" is that nothing is left of it in the end.
# A file that is not there yet is waited for, as any upload is. Half an original that says it is whole is told by the
# store's own length of it, half a text by its recorded sum. A file may take its time, so an answer that drips has no
# end of its own: the time limit of the stage ends it, and that is the machine's (jobs/tests): "-".
TABLE = """
kind                          head-raw  get-raw   put-text  head-text get-text  delete
status-400                    storage   storage   storage   storage   storage   done
status-400-echo               storage   storage   storage   storage   storage   done
status-401                    storage   storage   storage   storage   storage   done
status-402                    storage   storage   storage   storage   storage   done
status-403                    storage   storage   storage   storage   storage   done
status-404                    done      storage   storage   hash      storage   done
status-408                    storage   storage   storage   storage   storage   done
status-409                    storage   storage   storage   storage   storage   done
status-413                    storage   storage   storage   storage   storage   done
status-422                    storage   storage   storage   storage   storage   done
status-429                    storage   storage   storage   storage   storage   done
status-429-seconds            storage   storage   storage   storage   storage   done
status-429-date               storage   storage   storage   storage   storage   done
status-429-ms                 storage   storage   storage   storage   storage   done
status-429-nonsense           storage   storage   storage   storage   storage   done
status-429-insufficient_quota storage   storage   storage   storage   storage   done
status-500                    storage   storage   storage   storage   storage   done
status-500-echo               storage   storage   storage   storage   storage   done
status-502                    storage   storage   storage   storage   storage   done
status-503                    storage   storage   storage   storage   storage   done
status-504                    storage   storage   storage   storage   storage   done
status-529                    storage   storage   storage   storage   storage   done
status-408-after-sale         storage   storage   storage   storage   storage   done
status-500-after-sale         storage   storage   storage   storage   storage   done
status-502-after-sale         storage   storage   storage   storage   storage   done
status-503-after-sale         storage   storage   storage   storage   storage   done
status-504-after-sale         storage   storage   storage   storage   storage   done
refused                       storage   storage   storage   storage   storage   done
reset                         storage   storage   storage   storage   storage   done
reset-after-sale              storage   storage   storage   storage   storage   done
reset-mid-body                done      storage   done      done      storage   done
hang                          storage   storage   storage   storage   storage   done
hang-after-sale               storage   storage   storage   storage   storage   done
one-byte-a-second             done      storage   done      done      storage   done
ten-bytes-a-second            -         -         -         -         -         -
head-ten-bytes-a-second       -         -         -         -         -         -
truncated-json                done      storage   done      done      hash      done
truncated-body                done      storage   done      done      storage   done
empty-200                     storage   storage   storage   storage   storage   done
garbage                       storage   storage   storage   storage   storage   done
html-200                      storage   storage   storage   storage   storage   done
another-shape                 storage   storage   storage   storage   storage   done
json-list                     storage   storage   storage   storage   storage   done
json-null                     storage   storage   storage   storage   storage   done
redirect-302                  storage   storage   storage   storage   storage   done
status-204                    storage   storage   storage   storage   storage   done
"""
ROUTES = {
    "head-raw": "HEAD /raw/*",
    "get-raw": "GET /raw/*",
    "put-text": "PUT /parsed/*",
    "head-text": "HEAD /parsed/*",
    "get-text": "GET /parsed/*",
    "delete": "DELETE /raw/*",
}
POINTS = {"put-text": "parsing:begin", "head-text": "parsed:begin", "get-text": "parsed:begin"}


class Session(boto3.Session):  # type: ignore[misc]
    """Makes a client once for each way to make it: that takes longer than most cells do."""

    def __init__(self) -> None:
        super().__init__("test", "test")
        self._made: dict[str, Any] = {}

    def client(self, *args: Any, **said: Any) -> Any:
        way = repr((args, {**said, "config": sorted(said["config"]._user_provided_options.items())}))
        if way not in self._made:
            self._made[way] = super().client(*args, **said)
        return self._made[way]


SESSION = Session()
CELLS = list(fault_matrix.cells(TABLE))


def test_the_table_is_complete() -> None:
    assert fault_matrix.kinds(TABLE) == {*faults_for("s3"), *MORE_KINDS}
    assert {site for _, site in fault_matrix.read(TABLE)} == set(ROUTES)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(server: S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.0)
    monkeypatch.setattr(S3Bucket, "_create_session", lambda self: SESSION)
    use_s3_storage(settings, server)
    settings.JOBS_PIPELINES = "testing.stub_pipelines.PARSE_ONLY"
    yield server
    server.clear_faults()
    for name in ("raw", "parsed"):
        bucket: Any = storages[name]
        for stored in list(bucket.names()):
            bucket.delete(stored)


def _names() -> list[str]:
    return [stored for name in ("raw", "parsed") for stored in storages[name].names()]  # type: ignore[attr-defined]


def _hurry(kind: str, monkeypatch: pytest.MonkeyPatch, settings: Any, server: S3Server) -> None:
    if kind in SLOW:
        monkeypatch.setattr("documents.storage.s3.READ_SECONDS", 0.3)
        use_s3_storage(settings, server)  # its clients are made anew


def _uploaded(ana: Person) -> Upload:
    answer = ana.request_upload(PDF, filename=f"{CANARY}.pdf").json()
    sha256 = base64.b64encode(hashlib.sha256(PDF).digest()).decode()
    headers = {"Content-Type": "application/pdf", "x-amz-checksum-sha256": sha256}
    assert requests.put(answer["signed_url"], PDF, headers=headers, timeout=10).status_code == 200
    return Upload(UUID(answer["job_id"]), UUID(answer["document_id"]))


@pytest.mark.parametrize(("kind", "site", "word"), [cell for cell in CELLS if not cell.id.startswith("delete")])
def test_a_document_waits_for_its_store_and_is_charged_nothing(
    kind: str,
    site: str,
    word: str,
    ana: Person,
    s3: S3Server,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault_matrix.listen(caplog)
    uploaded = _uploaded(ana)

    def go_wrong() -> None:
        _hurry(kind, monkeypatch, settings, s3)
        fault_matrix.inject_fault(s3, ROUTES[site], kind, times=2)

    if site in POINTS:
        fault_matrix.at(monkeypatch, POINTS[site], go_wrong)
    else:
        go_wrong()

    watch = fault_matrix.Stopwatch()
    ran = fault_matrix.run(uploaded.job, s3.clear_faults)

    assert ran.outcome == OUTCOMES[word]
    assert kind not in fault_matrix.SLOW or watch.seconds < 25  # the slowest response would take 30 and more
    document = Document.objects.get(pk=uploaded.document_id)
    mine = f"{ana.id}/{uploaded.document_id}"
    assert storages["raw"].read(f"{mine}.pdf") == PDF  # type: ignore[attr-defined]
    if ran.dead is None:
        text = storages["parsed"].read(f"{mine}.md")  # type: ignore[attr-defined]
        assert hashlib.sha256(text).hexdigest() == document.parsed_sha256
        assert _names() == [f"{mine}.pdf", f"{mine}.md"]
    assert fault_matrix.leaks(caplog, s3.url, "X-Amz-Signature", ana.token) == []


@pytest.mark.parametrize(("kind", "site", "word"), [cell for cell in CELLS if cell.id.startswith("delete")])
def test_a_deleted_documents_files_go_sooner_or_later(
    kind: str,
    site: str,
    word: str,
    ana: Person,
    s3: S3Server,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault_matrix.listen(caplog)
    uploaded = _uploaded(ana)
    fault_matrix.run(uploaded.job)
    _hurry(kind, monkeypatch, settings, s3)
    fault_matrix.inject_fault(s3, ROUTES[site], kind, times=2)

    watch = fault_matrix.Stopwatch()
    answer = ana.delete(f"/documents/{uploaded.document_id}")
    first = watch.seconds
    s3.clear_faults()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE object_deletions SET drop_after = now() - interval '1 hour'")
    periodic.delete_removed_objects()

    assert answer.status_code in (204, 503)
    assert ana.get(f"/documents/{uploaded.document_id}").status_code == 404
    assert _names() == []
    assert first < 8
    assert fault_matrix.leaks(caplog, s3.url, "X-Amz-Signature", ana.token) == []
