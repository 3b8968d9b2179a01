"""Admin of statutes: ids and codes only, reprocessing and withdrawal."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone
from django.utils.text import capfirst

from accessa.admin_menu import SIDEBAR
from accounts.audit.tests.personas import Staff, audit_entries
from jobs.models import UploadJob
from statutes import document_ids
from statutes.models import Consumer, Law, LawVersion, laws_with_error_codes
from statutes.tests.sample_laws import BUCKET, KEY, TAXED, law_xml, process, put_file
from testing.factories import JobFactory
from testing.fakes.s3 import S3Server

pytestmark = pytest.mark.django_db
LAWS, VERSIONS, CONSUMERS = (f"statutes_{name}_changelist" for name in ("law", "lawversion", "consumer"))
TITLE = "Ley del Impuesto al Valor Agregado"


def run_action(member: Staff, page: str, action: str, chosen: Any, *, reason: str | None = None) -> Any:
    fields = {} if reason is None else {"confirmed": "yes", "reason": reason}
    return member.post(page, action=action, index="0", _selected_action=chosen, **fields)


def root_reads(job: UploadJob) -> str:
    """Return the document's page, as somebody sees it who has said why."""
    root = Staff("root", superuser=True)
    answer = root.client.post(f"/admin/documents/{job.document_id}/read/", {"reason": "T-7"}, follow=True)
    return str(answer.content.decode())


def test_a_statute_links_to_its_versions_jobs_and_artifacts(laws: S3Server) -> None:
    job = process(laws, law_xml(TAXED))
    support = Staff("support", group="support")

    listed, shown = support.page(LAWS), support.page("statutes_law_change", "LIVA")
    versions, version = support.page(VERSIONS, q="LIVA"), support.page("statutes_lawversion_change", job.document_id)

    assert "lawversion/?q=LIVA" in listed
    assert all(
        key in shown for key in ("normalized/LIVA/manifest.json", "chunks/LIVA/", "embeddings/LIVA_vectors.jsonl")
    )
    assert f"/admin/jobs/{job.pk}/" in versions
    assert "/statutes/law/LIVA/change/" in version
    assert "raw/federal/2024/ley-iva.xml" in version
    read = root_reads(job)
    assert TAXED[:40] in read
    assert "there is no image of it" in read
    assert 'console-picture"' not in read
    for page in (listed, versions, shown, version):
        assert (TITLE in page) == (page is not versions)  # on the version's page as its document's name
        assert TAXED[:40] not in page
    assert "user-42" not in listed + versions + shown
    assert "raw/federal" not in listed + versions + shown


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"status": "failed"}, {"status": "embedded"}),
        ({"priority": "high"}, {"priority": "low"}),
        ({"format": "docx"}, {"format": "pdf"}),
        ({"error_code": "NO_ARTICLES"}, {"error_code": "NO_TEXT"}),
    ],
)
def test_versions_can_be_filtered(fields: dict[str, str], others: dict[str, str]) -> None:
    LawVersion.objects.create(
        document_id=uuid4(), law_id="LISR", version="7", status="failed", priority="high", format="docx",
        error_code="NO_ARTICLES",
    )  # fmt: skip
    support = Staff("support", group="support")

    assert "LISR" in support.page(VERSIONS, **fields)
    assert "LISR" not in support.page(VERSIONS, **others)


def test_filters_of_versions_use_their_indexes() -> None:
    with connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO law_versions (document_id, law_id, version, bucket, raw_key, status, error_code)
            SELECT gen_random_uuid(), 'L' || n, '1', 'b', 'k', CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'embedded' END,
                   CASE WHEN n % 20 = 0 THEN 'C' || n % 7 END FROM generate_series(1, 20000) n;
            ANALYZE law_versions""")
        plans = []
        for where in ("status = 'failed'", "error_code = 'C3'"):
            order = "ORDER BY created_at DESC, document_id LIMIT 50"
            cursor.execute(f"EXPLAIN SELECT law_id FROM law_versions WHERE {where} {order}")
            plans.append("\n".join(line for (line,) in cursor.fetchall()))
        cursor.execute("""
            INSERT INTO laws (law_id, version, status) SELECT law_id, version, status FROM law_versions;
            ANALYZE laws""")
        sql, values = laws_with_error_codes().order_by("-updated_at", "law_id")[:50].query.sql_with_params()
        cursor.execute(f"EXPLAIN {sql}", values)
        listed = "\n".join(line for (line,) in cursor.fetchall())

    assert "ix_law_versions_status" in plans[0]
    assert "ix_law_versions_error" in plans[1]
    assert "Sort" not in plans[0] + plans[1]
    assert "ix_laws_updated" in listed
    assert "ix_law_versions_law" in listed


def test_a_failed_statute_is_named_wherever_its_job_is_listed(laws: S3Server) -> None:
    dead, support = process(laws, b"no law"), Staff("support", group="support")
    LawVersion.objects.update(status="failed", error_code="UNKNOWN_FORMAT")

    listed, jobs = support.page(LAWS), support.page("jobs_uploadjob_changelist", q=" LIVA ")
    letters = support.client.get("/admin/dead-letters/").content.decode()

    assert "UNKNOWN_FORMAT" in listed
    assert f"/admin/jobs/{dead.pk}/" in jobs
    assert f"/admin/jobs/{dead.pk}/" not in support.page("jobs_uploadjob_changelist", q="LIV")
    assert f'href="/admin/statutes/lawversion/{dead.document_id}/change/">LIVA 2024-01</a>' in letters
    assert "LIVA" not in Staff("sue", "jobs.view_uploadjob").client.get("/admin/dead-letters/").content.decode()


@pytest.fixture
def version() -> LawVersion:
    """Create a live version without a job, as the import of artifacts does."""
    Law.objects.create(law_id="LIVA", version="2024-01", status="embedded")
    return LawVersion.objects.create(
        document_id=document_ids.document_id("LIVA", "2024-01"), law_id="LIVA", version="2024-01", bucket=BUCKET,
        raw_key=KEY, status="embedded",
    )  # fmt: skip


def test_a_version_is_reprocessed_with_a_reason(version: LawVersion) -> None:
    operator = Staff("operator", group="operator")

    page = run_action(operator, VERSIONS, "reprocess", version.pk).content.decode()
    assert "Reprocess versions" in page
    assert "1 chosen: LIVA 2024-01." in page
    assert (
        "This field is required" in run_action(operator, VERSIONS, "reprocess", version.pk, reason=" ").content.decode()
    )
    assert not UploadJob.objects.exists()
    answers = [run_action(operator, VERSIONS, "reprocess", version.pk, reason="T-7") for _ in range(2)]
    page = operator.client.get(answers[0].url).content.decode()

    assert UploadJob.objects.get().document_id == version.pk
    assert [(action, actor) for action, actor, *_ in audit_entries()] == [("laws.reprocess", "operator@example.org")]
    assert "1 queued again." in page
    assert "1 not queued again: JOB_ALREADY_ACTIVE." in page


def test_operators_withdraw_a_statute_and_support_may_not(version: LawVersion, laws: S3Server) -> None:
    run_action(Staff("support", group="support"), LAWS, "withdraw", "LIVA", reason="T-7")
    assert Law.objects.exists()

    operator = Staff("operator", group="operator")
    assert "1 chosen: LIVA." in run_action(operator, LAWS, "withdraw", "LIVA").content.decode()
    run_action(operator, LAWS, "withdraw", "LIVA", reason="repealed")

    assert not Law.objects.exists()
    assert [(action, object_id) for action, _, object_id, _ in audit_entries()] == [("laws.withdraw", "LIVA")]


def test_the_confirmation_names_the_statutes_to_withdraw_and_the_limit() -> None:
    for number in range(12):
        Law.objects.create(law_id=f"L{number:02}", version="1", status="embedded")
    chosen = [f"L{number:02}" for number in range(12)]

    page = run_action(Staff("operator", group="operator"), LAWS, "withdraw", chosen).content.decode()

    assert f"10 chosen: {', '.join(chosen[:10])}. At most 10 at once: the other 2 are left." in page
    assert "L11" not in page.partition("10 chosen")[2]


@pytest.mark.parametrize(
    ("page", "action", "chosen"),
    [(VERSIONS, "reprocess", "no id"), (VERSIONS, "reprocess", str(uuid4.__name__)), (LAWS, "withdraw", "a\0b")],
)
def test_an_unknown_selection_is_rejected(page: str, action: str, chosen: str) -> None:
    answer = run_action(Staff("operator", group="operator"), page, action, chosen, reason="T-7")

    assert answer.status_code == 302
    assert not audit_entries()


def test_consumers_are_listed_with_their_liveness() -> None:
    job = JobFactory.create()
    Consumer.objects.create(name="a:1", state="processing", job_id=job.pk, received=41, ended=37, failed=3)
    Consumer.objects.create(name="b:1", state="idle", seen_at=timezone.now() - timedelta(minutes=5))
    Consumer.objects.create(name="c:1", state="shutdown")

    page = Staff("support", group="support").page(CONSUMERS)

    assert f"/admin/jobs/{job.pk}/" in page
    assert all(column in page for column in ("Messages received", "Done and deleted", "Refused or failed"))
    assert [page.index(f">{count}</td>") for count in (41, 37, 3)] == sorted(
        page.index(f">{count}</td>") for count in (41, 37, 3)
    )
    shown = [page.index(word) for word in ("a:1", "alive", "b:1", "silent", "c:1", "stopped")]
    assert shown == sorted(shown)


def test_lists_have_the_names_of_the_menu() -> None:
    (menu,) = [each["items"] for each in SIDEBAR["navigation"] if each["title"] == "Statutes"]

    assert [capfirst(each._meta.verbose_name_plural) for each in (Law, LawVersion, Consumer)] == [
        entry["title"] for entry in menu
    ]


def test_job_pages_work_for_statutes_of_the_system_tenant(laws: S3Server) -> None:
    dead, root = process(laws, b"no law"), Staff("root", superuser=True)
    put_file(laws, law_xml(TAXED))

    page = root.client.get(f"/admin/jobs/{dead.pk}/").content.decode()
    ask = root.client.get(f"/admin/documents/{dead.document_id}/read/").content.decode()
    proofs = root.client.get(f"/admin/jobs/{dead.pk}/invariants/").content.decode()
    letters = root.client.get("/admin/dead-letters/").content.decode()
    retried = root.client.post(f"/admin/jobs/{dead.pk}/repair/", {"verb": "retry", "reason": "T-7"})

    assert "UNKNOWN_FORMAT" in page
    assert f"/statutes/lawversion/{dead.document_id}/change/" in page
    assert "Why you read the statute's text" in page
    assert "Why you read the statute's text" in ask
    assert "a tenant's text" not in page + ask
    assert "holds" in proofs
    assert "UNKNOWN_FORMAT" in letters
    assert (retried.status_code, UploadJob.objects.get().state) == (302, "queued")
