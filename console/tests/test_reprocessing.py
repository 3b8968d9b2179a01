"""Read again and cut again: one document, at a price that is shown first."""

from typing import Any

import pytest

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff
from documents.models import Document
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.test_reparse_campaign import finish_campaigns, vendor  # noqa: F401 - a fixture
from testing.fakes.llamaparse import LlamaParseServer
from testing.personas import Person, Upload, plan_pdf

pytestmark = pytest.mark.django_db


@pytest.fixture
def done(ana: Person) -> Upload:
    ana.ingest(plan_pdf("another document"))
    return ana.ingest(plan_pdf("hospital care", "drugs"))


@pytest.fixture
def operator(db: None) -> Staff:
    return Staff("operator", group="operator")


def again(staff: Staff, document_id: object, **fields: str) -> Any:
    return staff.client.post(f"/admin/documents/{document_id}/again/", fields)


def test_a_document_is_read_again_by_the_chosen_parser_for_its_price(
    done: Upload,
    operator: Staff,
    vendor: LlamaParseServer,  # noqa: F811
) -> None:
    chosen = {"kind": "reparse", "parser": "llamaparse"}
    for kind in ("reparse", "rechunk"):  # a retry from a stage of a job that is done
        link = f"/admin/documents/{done.document_id}/again/?kind={kind}"
        assert link in operator.client.get(f"/admin/jobs/{done.job_id}/").content.decode()
        assert f'value="{kind}" selected' in operator.client.get(link).content.decode()

    priced = again(operator, done.document_id, price="", **chosen).content.decode()
    started = again(operator, done.document_id, start="", reason="ticket 7", **chosen)
    finish_campaigns()

    assert "2 pages to read" in priced
    assert "at most <strong>$0.0075</strong>" in priced
    assert started.status_code == 302
    assert Document.objects.get(pk=done.document_id).parser_name == "llamaparse"
    assert Document.objects.exclude(pk=done.document_id).get().parser_name != "llamaparse"
    assert [(entry.action, entry.reason) for entry in AuditEntry.objects.all()] == [("documents.reparse", "ticket 7")]
    assert Campaign.objects.get().state == "finished"


def test_a_document_is_cut_again_alone(done: Upload, operator: Staff) -> None:
    former = Document.objects.get(pk=done.document_id).chunks_version
    page = operator.client.get(f"/admin/documents/{done.document_id}/again/").content.decode()
    other = next(label for label in ("markdown-simple@1", "markdown-simple@2") if label != former and label in page)

    again(operator, done.document_id, start="", kind="rechunk", chunker=other, reason="x")
    finish_campaigns()

    assert Document.objects.get(pk=done.document_id).chunks_version == other
    assert set(Document.objects.exclude(pk=done.document_id).values_list("chunks_version", flat=True)) == {former}


def test_a_price_writes_nothing_and_names_what_would_stay_the_same(done: Upload, operator: Staff) -> None:
    same = again(operator, done.document_id, kind="reparse", parser="local", price="").content.decode()
    other = again(operator, done.document_id, kind="reparse", parser="local", ocr="on", price="").content.decode()

    assert "NOTHING_TO_DO" in same
    assert "at most <strong>$0.00</strong>" in other
    assert not Document.objects.filter(ocr=True).exists()
    assert not Campaign.objects.exists()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"kind": "reparse", "ocr": "on"}, "REASON_REQUIRED"),
        ({"kind": "reparse", "parser": "llamaparse", "reason": "x"}, "Select a valid choice"),  # without its key
        ({"kind": "rechunk", "chunker": "no-such@1", "reason": "x"}, "Select a valid choice"),
    ],
)
def test_a_refused_start_changes_nothing(done: Upload, operator: Staff, fields: dict[str, str], code: str) -> None:
    assert code in again(operator, done.document_id, start="", **fields).content.decode()
    assert not Campaign.objects.exists()
    assert not Document.objects.filter(ocr=True).exists()


def test_support_may_not_read_again(done: Upload) -> None:
    assert again(Staff("support", group="support"), done.document_id, kind="reparse", price="").status_code == 403
