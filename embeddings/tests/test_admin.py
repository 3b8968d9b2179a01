"""Passages in the admin: their text is read with a permission and a reason, and that is written down."""

import pytest
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff, audit_entries
from embeddings.models import ChunkBuffer, DocumentChunk, VectorBuffer
from testing.personas import Person, claim_at_stage, plan_pdf

pytestmark = pytest.mark.django_db

WORD = "Zymurgy"
ROUTES = {DocumentChunk: "embeddings_documentchunk", ChunkBuffer: "embeddings_chunkbuffer"}


@pytest.fixture
def ana_s_passages(ana: Person) -> Person:
    ana.upload(plan_pdf(f"{WORD} <script>alert(1)</script>"))
    claim_at_stage("embeddings_buffered")
    return ana


def test_text_is_shown_for_a_reason_that_is_audited(ana_s_passages: Person) -> None:
    sue = Staff("sue", group="support")
    for model, route in ROUTES.items():
        passage = model._default_manager.all()[:1].get()
        page = sue.page(f"{route}_read", passage.pk)
        unreasoned = sue.post(f"{route}_read", passage.pk, reason="  ").content.decode()
        assert WORD not in page + unreasoned
        assert not AuditEntry.objects.exists() or model is ChunkBuffer

        answer = sue.post(f"{route}_read", passage.pk, reason="INC-7")

        shown = answer.content.decode()
        assert WORD in shown
        assert "&lt;script&gt;" in shown
        assert "<script>alert" not in shown
        assert "no-store" in answer.headers["Cache-Control"]
        assert audit_entries()[-1] == ("documents.read_text", sue.user.email, str(passage.pk), ana_s_passages.id)
    assert WORD not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    "permissions",
    [
        ("embeddings.view_documentchunk", "embeddings.view_chunkbuffer"),
        ("documents.read_text",),
        ("documents.read_text", "embeddings.view_vectorbuffer"),
    ],
)
def test_text_needs_view_and_read_permissions(permissions: tuple[str, ...], ana_s_passages: Person) -> None:
    looker = Staff("looker", *permissions)
    for model, route in ROUTES.items():
        passage = model._default_manager.all()[:1].get()

        answers = [looker.get(f"{route}_read", passage.pk), looker.post(f"{route}_read", passage.pk, reason="INC-7")]

        assert [answer.status_code for answer in answers] == [403, 403]
    assert audit_entries() == []


def test_read_page_is_closed_to_anonymous_users_and_tenants(ana_s_passages: Person) -> None:
    address = reverse("admin:embeddings_documentchunk_read", args=[DocumentChunk.objects.all()[0].pk])
    tenant = Client()
    tenant.force_login(ana_s_passages.user)

    answers = [client.post(address, {"reason": "x"}) for client in (Client(), tenant, ana_s_passages.client)]

    assert [answer.status_code for answer in answers] == [302, 302, 302]


def test_deleted_passage_is_404(ana_s_passages: Person) -> None:
    root = Staff("root", superuser=True)
    passage = DocumentChunk.objects.all()[0]
    DocumentChunk.objects.all().delete()

    for object_id in (passage.pk, "x", "../x"):
        assert (
            root.client.post(f"/admin/embeddings/documentchunk/{object_id}/read/", {"reason": "x"}).status_code == 404
        )
    assert audit_entries() == []


def test_a_document_s_passages_are_listed_in_their_order(ana_s_passages: Person, ben: Person) -> None:
    root, theirs = Staff("root", superuser=True), VectorBuffer.objects.all()[:1].get()

    page = root.page("embeddings_documentchunk_changelist", document_id=str(theirs.document_id))
    elsewhere = root.page("embeddings_documentchunk_changelist", document_id=str(ben.id))

    ids = [str(pk) for pk in DocumentChunk.objects.order_by("chunk_ord").values_list("pk", flat=True)]
    places = [page.index(f"/{pk}/change/") for pk in ids]
    assert places == sorted(places)
    assert not any(pk in elsewhere for pk in ids)
