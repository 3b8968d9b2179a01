"""Thumbnails: rendered once, kept in the store, deleted with their document."""

import io
from typing import Any

import pytest
from PIL import Image

from accessa.integrity.violations import find_orphaned_files
from documents import services
from documents.models import Document, ObjectDeletion
from documents.page_images import renderer, thumbnail_renderer
from documents.storage import thumbnails
from testing.pdfs import text_pdf
from testing.personas import Person


@pytest.fixture
def document(ana: Person, settings: Any) -> Document:
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    uploaded = ana.ingest(text_pdf("Dental care is covered."))
    return Document.objects.get(pk=uploaded.document_id)


def test_a_thumbnail_is_rendered_once_and_cached_by_browsers(
    document: Document, ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/documents/{document.pk}/thumbnail"
    first = ana.get(path)
    monkeypatch.setattr(renderer, "render_page", None)

    again = ana.get(path)
    known = ana.client.get(path, headers={"if-none-match": first["ETag"]})

    assert (first.status_code, first["Content-Type"]) == (200, "image/jpeg")
    assert Image.open(io.BytesIO(first.content)).width == thumbnail_renderer.WIDTH
    assert again.content == first.content
    assert known.status_code == 304
    assert list(find_orphaned_files("parsed")) == []


def test_a_deleted_document_leaves_no_thumbnail_and_gets_none(document: Document, ana: Person) -> None:
    ana.get(f"/documents/{document.pk}/thumbnail")

    services.delete(document)
    thumbnails.store_thumbnail(document, b"rendered during the deletion")

    assert thumbnails.read_thumbnail(document) is None
    assert ObjectDeletion.objects.filter(path=thumbnails.thumbnail_path(document)).exists()
    assert ana.get(f"/documents/{document.pk}/thumbnail").status_code == 404


def test_a_file_without_pages_to_show_has_no_thumbnail(ana: Person) -> None:
    declared = ana.upload(text_pdf("x"))
    waiting = ana.get(f"/documents/{declared.document_id}/thumbnail")
    refused = ana.ingest(b"no PDF")

    assert waiting.json()["code"] == "NOT_READY"
    assert ana.get(f"/documents/{refused.document_id}/thumbnail").json()["code"] == "NOT_READY"


def test_thumbnails_wait_for_each_other_only_so_long(
    document: Document, ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thumbnail_renderer, "SECONDS", 0.01)

    with thumbnail_renderer._rendering:
        busy = ana.get(f"/documents/{document.pk}/thumbnail")

    assert (busy.status_code, busy.json()["code"], busy["Retry-After"]) == (503, "UNAVAILABLE", "5")
