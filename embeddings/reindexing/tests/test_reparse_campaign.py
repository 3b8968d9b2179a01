"""Campaigns that move documents to the configured parser: price, scope, and what the vendor is paid."""

import uuid
from collections.abc import Iterator
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from documents.models import Document
from documents.parsers import pdf_parser, registry
from embeddings.reindexing import cost_estimates, periodic
from embeddings.reindexing.admin import StartForm
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import run_campaigns
from jobs.models import UploadJob
from testing.fakes.llamaparse import LlamaParseServer
from testing.personas import Person, Upload, plan_pdf, run_all_jobs
from vendors.models import Purchase

pytestmark = pytest.mark.django_db

PDF, OTHER_PDF = plan_pdf("hospital care", "drugs"), plan_pdf("dental care")
BROKEN_PDF = PDF.replace(b"/Root 1 0 R", b"/Root 1#0 R")  # for PDFium, which is LiteParse's too
TWO_PAGES_CENTS = Decimal("0.75")  # 3 credits a page at 0.125 cents


@pytest.fixture
def vendor(settings: Any) -> Iterator[LlamaParseServer]:
    """LlamaParse, done as soon as it is asked; ``settings.PARSER`` is still local."""
    with LlamaParseServer() as server:
        settings.LLAMAPARSE_API_KEY, settings.LLAMAPARSE_BASE_URL = server.key, server.url
        settings.PARSE_POLL_FIRST_SECONDS = 0.0
        settings.VENDOR_TIMEOUT_SECONDS = 3.0
        registry.vendor_client.cache_clear()
        yield server
    registry.vendor_client.cache_clear()


def run_reparse(*options: str) -> str:
    out = StringIO()
    call_command("reparse", *options, stdout=out)
    return out.getvalue()


def finish_campaigns() -> None:
    for _ in range(4):
        run_all_jobs(4)
        periodic.advance_campaigns()


def parser_of(uploaded: Upload) -> str:
    return str(Document.objects.get(pk=uploaded.document_id).parser_name)


def test_documents_move_to_the_vendor_at_the_price_that_was_named(
    ana: Person, settings: Any, vendor: LlamaParseServer
) -> None:
    uploaded = ana.ingest(PDF)
    settings.PARSER = "llamaparse"
    settings.TENANT_DAILY_CENTS = 0.01  # the tenant's own budget does not pay for it

    priced = run_reparse("--dry-run")
    run_reparse("--yes", "--reason", "INC-7")
    finish_campaigns()

    assert "1 documents, 2 pages to parse" in priced
    assert f"At most {TWO_PAGES_CENTS:.6f} cents" in priced
    campaign = Campaign.objects.get()
    assert (campaign.state, campaign.target) == ("finished", "llamaparse@2026-09-28+cost_effective")
    assert parser_of(uploaded) == "llamaparse"
    (bought,) = Purchase.objects.filter(vendor="llamaparse")
    assert (bought.campaign_id, bought.state, bought.cents) == (campaign.pk, "settled", TWO_PAGES_CENTS)
    assert ana.get(f"/job/{uploaded.job_id}").json()["cost_cents"] == 0


def test_what_is_of_the_configured_parser_is_not_parsed_again(ana: Person) -> None:
    ana.ingest(PDF)

    with pytest.raises(CommandError, match="NOTHING_TO_DO"):
        run_reparse()

    run_campaigns()
    assert UploadJob.objects.count() == 1


def test_what_the_configured_parser_cannot_read_waits_for_another_version_of_it(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana.ingest(BROKEN_PDF)
    document = Document.objects.get()
    assert (document.parser_name, document.parser_version) == ("pdf-oxide", f"0.3.78+liteparse-{pdf_parser.VERSION}")

    with pytest.raises(CommandError, match="NOTHING_TO_DO"):
        run_reparse()
    monkeypatch.setattr(pdf_parser, "VERSION", "better")
    run_reparse("--yes")
    finish_campaigns()

    assert Campaign.objects.get().state == "finished"
    assert Document.objects.get().parser_version == "0.3.78+liteparse-better"


def test_another_version_parses_nothing_by_itself(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded = ana.ingest(PDF)
    before = Document.objects.get().parser_version

    monkeypatch.setattr(pdf_parser, "VERSION", "better")
    run_campaigns()

    assert Document.objects.get(pk=uploaded.document_id).parser_version == before


def test_a_reparse_is_of_the_tenants_or_documents_that_are_named(
    ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = ana.ingest(PDF), ana.ingest(OTHER_PDF), ben.ingest(PDF)
    monkeypatch.setattr(pdf_parser, "VERSION", "better")

    def moved() -> list[bool]:
        rows = dict(Document.objects.values_list("pk", "parser_version"))
        return [rows[each.document_id] == "better" for each in (first, second, other)]

    run_reparse("--document", str(second.document_id))
    finish_campaigns()
    assert moved() == [False, True, False]

    run_reparse("--tenant", str(ben.id))
    finish_campaigns()
    assert moved() == [False, True, True]

    run_reparse()
    finish_campaigns()
    assert moved() == [True, True, True]
    assert set(Campaign.objects.values_list("state", flat=True)) == {"finished"}


def test_an_unknown_document_or_one_of_another_tenant_is_refused(
    ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = ana.ingest(PDF)
    monkeypatch.setattr(pdf_parser, "VERSION", "better")

    for options in (
        ["--document", str(uuid.UUID(int=7))],
        ["--document", str(uploaded.document_id), "--tenant", str(ben.id)],
    ):
        with pytest.raises(CommandError, match="no such documents"):
            run_reparse(*options)
    with pytest.raises(CommandError, match="--document"):
        run_reparse("--document", "seven")
    assert not Campaign.objects.exists()


@pytest.mark.parametrize(("answer", "campaigns"), [("y", 1), ("", 0), ("no", 0)])
def test_it_asks_before_it_spends(
    answer: str, campaigns: int, ana: Person, settings: Any, vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana.ingest(PDF)
    settings.PARSER = "llamaparse"
    monkeypatch.setattr("builtins.input", lambda _: answer)

    assert f"{TWO_PAGES_CENTS:.6f} cents" in run_reparse()

    assert Campaign.objects.count() == campaigns


def test_without_a_person_to_ask_it_spends_nothing(
    ana: Person, settings: Any, vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana.ingest(PDF)
    settings.PARSER = "llamaparse"
    monkeypatch.setattr("sys.stdin", StringIO())

    with pytest.raises(CommandError, match="--yes"):
        run_reparse()

    assert not Campaign.objects.exists()


def test_a_budget_stops_before_the_document_that_it_does_not_pay(
    ana: Person, settings: Any, vendor: LlamaParseServer
) -> None:
    documents = [ana.ingest(PDF), ana.ingest(plan_pdf("hospital care", "eyes"))]
    settings.PARSER = "llamaparse"

    run_reparse("--yes", "--budget", "1")
    finish_campaigns()

    campaign = Campaign.objects.get()
    assert (campaign.state, campaign.reason) == ("paused", "BUDGET_SPENT")
    assert sorted(map(parser_of, documents)) == ["liteparse", "llamaparse"]


def test_the_admin_prices_a_reparse(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    ana.ingest(PDF)
    monkeypatch.setattr(pdf_parser, "VERSION", "better")

    form = StartForm({"target": "reparse", "keep_hours": 1})

    assert form.is_valid(), form.errors
    estimate = cost_estimates.estimate(**form.target_options)
    assert (estimate.documents, estimate.pages, estimate.cents) == (1, 2, Decimal(0))
