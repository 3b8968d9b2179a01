"""The admin of documents: file names for staff who may see documents, and links to everything related."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.audit.tests.personas import Staff, audit_entries
from documents.models import Document
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


def test_a_documents_page_links_to_its_job_and_related_lists(ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("drugs"), filename="canary.pdf")
    root = Staff("root", superuser=True)

    page = root.page("documents_document_change", uploaded.document_id)

    links = re.findall(rf'href="(/admin/[a-z/]+/\?q={uploaded.document_id})"', page)
    assert f"/admin/jobs/{uploaded.job_id}/" in page
    assert len(links) == 6
    assert {root.client.get(link).status_code for link in links} == {200}
    assert "canary.pdf" in page
    assert "canary.pdf" in root.page("documents_document_changelist")


def test_a_document_without_a_job_has_a_page(ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("drugs"))
    uploaded.job.delete()

    assert str(uploaded.document_id) in Staff("root", superuser=True).page(
        "documents_document_change", uploaded.document_id
    )


def test_a_list_costs_the_same_however_many_documents_it_shows(ana: Person) -> None:
    root = Staff("root", superuser=True)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            root.page("documents_document_changelist")
        return len(seen)

    ana.request_upload(b"1")
    one = queries()
    for content in (b"2", b"3", b"4"):
        ana.request_upload(content)

    assert Document.objects.count() == 4
    assert queries() == one


def test_a_deletion_is_in_the_audit_log_by_ids(ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("drugs"), filename="canary.pdf")

    ana.delete(f"/documents/{uploaded.document_id}")

    assert audit_entries() == [("documents.delete", "tenant", str(uploaded.document_id), ana.id)]
    assert "documents.delete" in Staff("root", superuser=True).page("audit_auditentry_changelist")
