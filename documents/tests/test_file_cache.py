"""The cache of remote files: fetched once, only for existing documents, bounded in age and size."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.storage import storages
from django.db.models.functions import Now

from accessa.server import gunicorn_conf, gunicorn_worker
from accounts.errors import ApiError
from documents.models import Document
from documents.page_images import renderer
from documents.storage import buckets, file_cache
from documents.tests.s3_settings import use_s3_storage
from testing.fakes.faults import Fault
from testing.fakes.s3 import S3Server
from testing.pdfs import text_pdf
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def remote_ana(ana: Person, server: S3Server, settings: Any) -> Person:
    """Ana, whose files are at a store of another machine."""
    use_s3_storage(settings, server, S3_PRESIGN=False)
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    return ana


def cached_files(settings: Any) -> list[Path]:
    return list(Path(settings.STORAGE_ROOT, file_cache.FOLDER).glob("*"))


def observed_response(seen: list[int], look: Callable[[], int]) -> Fault:
    """Return a kind of response that is good, after calling ``look``."""

    def change(_faults: object, answer: Any) -> Any:
        seen.append(look())
        return answer

    return Fault("watched", sold=True, change=change)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> set[tuple[str, str]]:
    """Return the kinds and modes of a folder and all below it."""
    return {("folder" if path.is_dir() else "file", oct(path.stat().st_mode)[-3:]) for path in (root, *root.rglob("*"))}


def test_local_files_are_private_whatever_the_umask(ana: Person, open_umask: None, settings: Any) -> None:
    ana.ingest(plan_pdf("drugs"))
    storages["raw"].write_incoming([b"on its way"])  # type: ignore[attr-defined]

    assert len([path for path in Path(settings.STORAGE_ROOT).rglob("*") if path.is_file()]) == 3
    assert modes(Path(settings.STORAGE_ROOT)) == {("folder", "700"), ("file", "600")}


def test_cached_files_are_private_whatever_the_umask(remote_ana: Person, open_umask: None, settings: Any) -> None:
    document = Document.objects.get(pk=remote_ana.ingest(plan_pdf("drugs")).document_id)
    file_cache.read_page(document, 1)
    renderer.render_page(document, 1)

    assert len(cached_files(settings)) == 2
    assert modes(Path(settings.STORAGE_ROOT)) == {("folder", "700"), ("file", "600")}


def test_fetching_from_the_store_occupies_no_sandbox(remote_ana: Person, server: S3Server) -> None:
    uploaded, free = remote_ana.upload(text_pdf("words")), list[int]()
    Document.objects.filter(pk=uploaded.document_id).update(stored_at=Now())
    server.inject_fault("GET /raw/*", observed_response(free, renderer._sandboxes.qsize))

    renderer.render_page(Document.objects.get(pk=uploaded.document_id), 1)

    assert free == [renderer.MAX_CONCURRENT]


def test_a_text_is_fetched_once_for_all_its_pages(remote_ana: Person, settings: Any) -> None:
    document = Document.objects.get(pk=remote_ana.ingest(plan_pdf("hospital care", "drugs")).document_id)
    first = file_cache.read_page(document, 1)
    bucket, name = buckets.locate(str(document.parsed_path))
    text = bucket.read(name).decode()
    bucket.delete(name)

    second = file_cache.read_page(document, 2)

    assert first is not None
    assert second is not None
    assert (first[0] + second[0], first[1], second[1]) == (text, 0, len(first[0]))
    assert "drugs" in second[0]
    assert file_cache.read_page(document, 3) == file_cache.read_page(document, 0) == ("", len(text))


def test_a_text_with_another_hash_is_not_cached(remote_ana: Person, settings: Any) -> None:
    document = Document.objects.get(pk=remote_ana.ingest(plan_pdf("hospital care")).document_id)
    document.parsed_sha256 = "0" * 64

    assert file_cache.read_page(document, 1) is not None
    assert cached_files(settings) == []


@pytest.mark.slow
def test_a_document_deleted_during_the_fetch_is_not_cached(remote_ana: Person, settings: Any) -> None:
    document = Document.objects.get(pk=remote_ana.ingest(plan_pdf("hospital care")).document_id)
    stranger = Document.objects.get(pk=document.pk)
    stranger.user_id = uuid4()

    for gone in (stranger, document):
        if gone is document:
            Document.objects.filter(pk=document.pk).delete()
        with pytest.raises(ApiError, match="NOT_FOUND"), file_cache.cached_original(gone):
            pass
        with pytest.raises(ApiError, match="NOT_FOUND"):
            file_cache.read_page(gone, 1)
        assert cached_files(settings) == []


def test_a_web_process_evicts_another_processs_files_when_it_starts(settings: Any, store: None) -> None:
    settings.STORAGE_ROOT.joinpath(file_cache.FOLDER).mkdir(parents=True)
    old, young = (settings.STORAGE_ROOT / file_cache.FOLDER / f"{uuid4()}.sha" for _ in range(2))
    for path in (old, young):
        path.touch()
    os.utime(old, (time.time() - file_cache.MAX_AGE_SECONDS - 1,) * 2)

    gunicorn_conf.post_worker_init(SimpleNamespace(sockets=[], alive=True))
    gunicorn_worker._workers.clear()

    assert cached_files(settings) == [young]
    assert file_cache._timer_pending.locked(), "the young one goes too, though nobody looks at a page"
