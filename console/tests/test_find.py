"""Names in the console and its search: who may see them, where a search leads, and which index it reads."""

import json
import re
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import QuerySet

from accounts.admin_cells import find_names
from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff
from accounts.models import User
from console import lookup
from documents.models import Document
from jobs.admin import find_correlated_jobs
from jobs.models import Event, UploadJob
from testing.factories import JobFactory
from testing.personas import Person
from vendors.models import Purchase

pytestmark = pytest.mark.django_db
HOSTILE = '"><script>alert(1)</script>.pdf'


@pytest.fixture
def support(db: None) -> Staff:
    return Staff("support", group="support")


@pytest.fixture
def job(ana: Person) -> UploadJob:
    """Return a dead letter of Ana's, as the upload's request left it."""
    error = {"code": "PARSE_LOST", "detail": "…", "stage": "parsing", "attempt": 4}
    made: UploadJob = JobFactory.create(user_id=ana.id, state="deadletter", stage="parsing", last_error=error)
    Document.objects.filter(pk=made.document_id).update(user_id=ana.id, filename="Dental plan.pdf")
    Event.objects.create(
        job=made, document_id=made.document_id, user_id=ana.id, type="stage_started", severity="info",
        code="UPLOAD_ACCEPTED", correlation_id=made.correlation_id,
    )  # fmt: skip
    Purchase.objects.create(
        user_id=ana.id, document_id=made.document_id, job_id=made.pk, stage="parsing", vendor="llamaparse", model="m",
        unit="pages", quantity=7, cents=300,
    )  # fmt: skip
    log.record_action(by=None, action="x", reason="x", object_type="user", object_id=ana.id, tenant_id=ana.id)
    return made


def search(staff: Staff, text: object) -> str:
    """Return the address that a search leads to, "" without one."""
    return str(staff.client.get("/admin/find/", {"q": str(text)}).headers.get("Location", ""))


PAGES = (
    "/admin/jobs/uploadjob/", "/admin/jobs/event/?within=86400", "/admin/documents/document/",
    "/admin/vendors/purchase/", "/admin/dead-letters/", "/admin/jobs/{job}/", "/admin/tenants/{tenant}/",
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_support_sees_names_and_copies_ids(support: Staff, job: UploadJob, path: str) -> None:
    answer = support.client.get(path.format(job=job.pk, tenant=job.user_id))
    page = answer.content.decode()

    assert answer.status_code == 200
    assert "ana@example.org" in page
    assert "Dental plan.pdf" in page
    assert f'data-copy="{job.user_id}"' in page
    assert f">{job.user_id}<" not in page
    title = re.sub("<[^>]*>", "", page[page.index("<h1") : page.index("</h1>")]).split("chevron_right")
    assert len({part.strip() for part in title}) == len(title)  # not "Jobs > Jobs"


def test_names_need_the_permissions_of_their_pages(job: UploadJob) -> None:
    page = Staff("limited", "jobs.view_uploadjob").page("jobs_uploadjob_changelist")

    assert f'data-copy="{job.pk}"' in page
    assert "ana@example.org" not in page
    assert "Dental plan.pdf" not in page


def test_a_deleted_account_has_no_name_left_in_the_audit_log(job: UploadJob) -> None:
    root = Staff("root", superuser=True)
    before = root.page("audit_auditentry_changelist")
    User.objects.filter(pk=job.user_id).delete()

    after = root.page("audit_auditentry_changelist")

    assert "ana@example.org" in before
    assert "ana@example.org" not in after
    assert f'data-copy="{job.user_id}"' in after


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("ana@example.org", "/admin/tenants/{job.user_id}/"), (" ANA@example.org ", "/admin/tenants/{job.user_id}/"),
        ("dental PLAN.pdf", "/admin/documents/document/{job.document_id}/change/"),
        ("{job.pk}", "/admin/jobs/{job.pk}/"), ("{job.correlation_id}", "/admin/jobs/{job.pk}/"),
        ("{job.document_id}", "/admin/documents/document/{job.document_id}/change/"),
        ("{job.user_id}", "/admin/tenants/{job.user_id}/"),
        ("ana@example", ""), ("Dental", ""), ("\0", ""), ("6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42", ""),
    ],
)  # fmt: skip
def test_a_whole_text_leads_to_its_page(support: Staff, job: UploadJob, text: str, page: str) -> None:
    assert search(support, text.format(job=job)) == page.format(job=job)


def test_a_purchase_is_found_by_its_id(support: Staff, job: UploadJob) -> None:
    purchase = Purchase.objects.get()

    assert search(support, purchase.pk) == f"/admin/vendors/purchase/{purchase.pk}/change/"


def test_two_files_of_one_name_are_listed_with_their_owners(support: Staff, job: UploadJob, ben: Person) -> None:
    Document.objects.filter(pk=JobFactory.create().document_id).update(user_id=ben.id, filename="dental plan.pdf")

    page = support.client.get("/admin/find/", {"q": "Dental plan.pdf"}).content.decode()

    assert "file of ana@example.org" in page
    assert "file of ben@example.org" in page


def test_a_search_by_beginnings_needs_a_reason_and_is_audited_without_names(support: Staff, job: UploadJob) -> None:
    offered = support.client.get("/admin/find/", {"q": "dent"}).content.decode()
    without = support.client.post("/admin/find/beginnings/", {"q": "dent", "reason": " "}).content.decode()
    found = support.client.post("/admin/find/beginnings/", {"q": "dent", "reason": "ticket 7"}).content.decode()

    assert "Search by the beginning" in offered
    assert "Dental plan.pdf" not in offered + without
    assert "REASON_REQUIRED" in without
    assert "Dental plan.pdf" in found
    (entry,) = AuditEntry.objects.filter(action="names.search")
    assert (entry.reason, entry.actor) == ("ticket 7", "support@example.org")
    assert entry.details == {"characters": 4, "found": [str(job.document_id)]}


def test_names_are_not_found_without_permission(job: UploadJob) -> None:
    limited = Staff("limited", "jobs.view_uploadjob")

    assert search(limited, "ana@example.org") == ""
    assert search(limited, "Dental plan.pdf") == ""
    assert search(limited, job.pk) == f"/admin/jobs/{job.pk}/"
    assert limited.client.post("/admin/find/beginnings/", {"q": "a", "reason": "x"}).status_code == 403
    assert limited.client.get(f"/admin/tenants/{job.user_id}/").status_code == 403


def test_a_name_is_never_markup(support: Staff, job: UploadJob) -> None:
    Document.objects.filter(pk=job.document_id).update(filename=HOSTILE)

    for path in PAGES:
        page = support.client.get(path.format(job=job.pk, tenant=job.user_id)).content.decode()
        assert "<script>alert" not in page, path
    assert "<script>alert" not in support.client.get("/admin/find/", {"q": HOSTILE + "x"}).content.decode()


def test_a_list_asks_for_names_once_however_many_rows_it_shows(ana: Person, support: Staff) -> None:
    rows = [JobFactory.create(user_id=ana.id) for _ in range(3)]

    names = find_names(support.user, tenant=[row.user_id for row in rows], document=[row.document_id for row in rows])

    assert {names.find("document", row.document_id) for row in rows} != {None}
    assert names.find("tenant", rows[0].user_id) == "ana@example.org"
    assert names.find("tenant", uuid4()) is None


@pytest.mark.usefixtures("never_vacuumed")
@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (lookup.filename_condition("Plan.pdf"), "ix_documents_filename"),
        (lookup.filename_condition("pla", is_prefix=True), "ix_documents_filename"),
        (User.objects.filter(email__startswith="an"), r"users_email_\w+_like"),
        (User.objects.filter(email="ana@example.org"), r"users_email_\w+"),
        (Event.objects.filter(correlation_id=uuid4(), code="UPLOAD_ACCEPTED"), "ix_events_correlation"),
    ],
)
def test_each_search_reads_an_index(rows: QuerySet[Document], index: str) -> None:
    sql, params = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan = json.dumps(cursor.fetchone()[0])

    assert re.search(index, plan), plan
    assert find_correlated_jobs(uuid4()) == []
