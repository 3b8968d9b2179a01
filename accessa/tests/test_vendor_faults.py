"""Lasting vendor failures: documents wait, none is discarded, and all finish after recovery."""

from collections.abc import Iterator
from typing import Any

import pytest

from accessa.tests import fault_matrix
from accessa.tests.fault_matrix import CANARY, PATIENT
from jobs import worker
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.openai import OpenAIServer
from testing.pdfs import text_pdf
from testing.personas import Person, make_parked_jobs_due
from vendors.models import Purchase

pytestmark = pytest.mark.django_db
PDF = text_pdf(f"The plan pays 80 percent after the {CANARY} of 500 dollars.")
ROUTES = {
    "upload": "POST /api/v1/beta/files",
    "submit": "POST /api/v2/parse",
    "poll": "GET /api/v2/parse/*",
    "llamaparse": "*",
    "embed": "POST /v1/embeddings",
}
# The wait in which the document stays however often it is tried; "done" where one lost answer is all there was to lose.
TABLE = """
kind                          upload  submit  poll    llamaparse embed
status-401                    key     key     key     key        key
status-402                    quota   quota   quota   quota      quota
status-429                    limited limited limited limited    limited
status-429-seconds            limited limited limited limited    limited
status-500                    away    away    away    away       away
status-503                    away    away    away    away       away
reset                         away    away    away    away       away
refused                       -       -       -       away       away
html-200                      done    done    away    away       away
truncated-json                done    done    away    away       away
"""
REASONS = {
    "limited": "VENDOR_RATE_LIMITED",
    "quota": "VENDOR_QUOTA_EXHAUSTED",
    "key": "VENDOR_REFUSES_KEY",
    "away": "VENDOR_AWAY",
}
TRIES = 8


@pytest.fixture
def vendors(settings: Any) -> Iterator[dict[str, Any]]:
    with LlamaParseServer() as parse, OpenAIServer() as openai:
        settings.PARSER, settings.LLAMAPARSE_API_KEY, settings.LLAMAPARSE_BASE_URL = "llamaparse", parse.key, parse.url
        settings.EMBEDDER, settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "openai", openai.key, openai.url
        settings.OPENAI_REQUESTS_PER_MINUTE = settings.OPENAI_TOKENS_PER_MINUTE = 0
        settings.PARSE_POLL_FIRST_SECONDS, settings.VENDOR_TIMEOUT_SECONDS = 0.0, PATIENT
        fault_matrix.forget_parser()
        yield {"openai": openai, "llamaparse": parse}
    fault_matrix.forget_parser()


@pytest.mark.parametrize(("kind", "site", "word"), list(fault_matrix.cells(TABLE)))
def test_a_lasting_vendor_fault_discards_no_document(
    kind: str, site: str, word: str, ana: Person, vendors: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    fault_matrix.listen(caplog)
    server = vendors["openai" if site == "embed" else "llamaparse"]
    uploaded = ana.upload(PDF)
    fault_matrix.inject_fault(server, ROUTES[site], kind, times=1000)

    for _ in range(TRIES):
        make_parked_jobs_due()
        fault_matrix.let_vendors_rest()
        worker.drain()
    held, charged = uploaded.job, fault_matrix.charged(uploaded.job)
    server.clear_faults()
    ran = fault_matrix.run(uploaded.job)

    if word == "done":
        assert (held.state, len(charged)) == ("done", 1)
    else:
        assert (held.state, held.wait_reason) == ("queued", REASONS[word])
        assert len(charged) <= (2 if word == "away" else 0)
    assert (ran.dead, uploaded.job.state) == (None, "done")
    assert (vendors["llamaparse"].ledger.sold, vendors["llamaparse"].ledger.repeated) == (1, 0)
    assert Purchase.objects.filter(vendor="llamaparse").count() == 1
    assert fault_matrix.leaks(caplog, *(each.key for each in vendors.values())) == []
