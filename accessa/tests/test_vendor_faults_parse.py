"""Each fault of LlamaParse at each call: how the document ends, what it was charged, and that it is sold once.

The words are explained in ``fault_matrix.OUTCOMES``. A cell's kind goes wrong once, exactly at its site.
"""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from accessa.tests import fault_matrix
from accessa.tests.fault_matrix import CANARY, MORE_KINDS, OUTCOMES, PATIENT, QUICK, SLOW, Ran
from documents import periodic
from documents.models import ObjectDeletion, ParseRequest
from testing.fakes.faults import faults_for
from testing.fakes.llamaparse import KEY, LlamaParseServer
from testing.pdfs import text_pdf
from testing.personas import Person, Upload, claim_at_stage, run_all_jobs
from vendors.models import Breaker, Purchase, RateLimit

pytestmark = pytest.mark.django_db
PDF = text_pdf(f"The plan pays 80 percent after the {CANARY} of 500 dollars.")
PAGE_CENTS = Decimal("0.375")

# find-job, find-file: what a worker asks who goes on after one that died between two steps of the submit.
# cancel: the deadline has passed, so the end is PARSE_TIMEOUT whatever the vendor says to it.
# drop-job, drop-file: the document was deleted; "done" is that nothing will be asked again, "later" that
# a job which has yet to end is asked for again.
# The door cannot be shut between two calls of one step: "-".
TABLE = """
kind                          upload    submit    find-job  find-file poll      cancel    drop-job  drop-file
status-400                    refused   refused   refused   refused   refused   done      refused   refused
status-400-echo               refused   refused   refused   refused   refused   done      refused   refused
status-401                    key       key       key       key       key       key       key       key
status-402                    quota     quota     quota     quota     quota     quota     quota     quota
status-403                    key       key       key       key       key       key       key       key
status-404                    refused   file-gone refused   refused   done      done      done      done
status-408                    fault     fault     fault     fault     fault     fault     fault     fault
status-409                    fault     fault     fault     fault     fault     done      later     fault
status-413                    refused   refused   refused   refused   refused   refused   refused   refused
status-422                    refused   refused   refused   refused   refused   refused   refused   refused
status-429                    limited   limited   limited   limited   limited   limited   limited   limited
status-429-seconds            limited   limited   limited   limited   limited   limited   limited   limited
status-429-date               limited   limited   limited   limited   limited   limited   limited   limited
status-429-ms                 limited   limited   limited   limited   limited   limited   limited   limited
status-429-nonsense           limited   limited   limited   limited   limited   limited   limited   limited
status-429-insufficient_quota limited   limited   limited   limited   limited   limited   limited   limited
status-500                    fault     fault     fault     fault     fault     fault     fault     fault
status-500-echo               fault     fault     fault     fault     fault     fault     fault     fault
status-502                    fault     fault     fault     fault     fault     fault     fault     fault
status-503                    fault     fault     fault     fault     fault     fault     fault     fault
status-504                    fault     fault     fault     fault     fault     fault     fault     fault
status-529                    fault     fault     fault     fault     fault     fault     fault     fault
status-408-after-sale         fault     fault     fault     fault     fault     fault     fault     fault
status-500-after-sale         fault     fault     fault     fault     fault     fault     fault     fault
status-502-after-sale         fault     fault     fault     fault     fault     fault     fault     fault
status-503-after-sale         fault     fault     fault     fault     fault     fault     fault     fault
status-504-after-sale         fault     fault     fault     fault     fault     fault     fault     fault
refused                       silence   silence   silence   silence   silence   -         silence   -
reset                         silence   silence   silence   silence   silence   silence   silence   silence
reset-after-sale              silence   silence   silence   silence   silence   silence   silence   silence
reset-mid-body                silence   silence   silence   silence   silence   silence   silence   done
hang                          silence   silence   silence   silence   silence   silence   silence   silence
hang-after-sale               silence   silence   silence   silence   silence   silence   silence   silence
one-byte-a-second             silence   silence   silence   silence   silence   silence   silence   done
ten-bytes-a-second            silence   silence   silence   silence   silence   silence   silence   done
head-ten-bytes-a-second       silence   silence   silence   silence   silence   silence   silence   silence
truncated-json                invalid   invalid   invalid   invalid   invalid   invalid   invalid   done
truncated-body                invalid   invalid   invalid   invalid   invalid   invalid   invalid   done
empty-200                     invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
garbage                       invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
html-200                      invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
another-shape                 invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
json-list                     invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
json-null                     invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
redirect-302                  invalid   invalid   invalid   invalid   invalid   invalid   invalid   invalid
status-204                    invalid   invalid   invalid   invalid   invalid   invalid   invalid   done
unknown-status                -         -         -         -         invalid   -         -         -
another-job                   -         -         -         -         invalid   -         -         -
no-pages                      -         -         -         -         invalid   -         -         -
page-twice                    -         -         -         -         malformed -         -         -
page-beyond-the-last          -         -         -         -         malformed -         -         -
"""

ROUTES = {
    "upload": "POST /api/v1/beta/files",
    "submit": "POST /api/v2/parse",
    "find-job": "GET /api/v2/parse",
    "find-file": "GET /api/v1/beta/files",
    "poll": "GET /api/v2/parse/*",
    "cancel": "POST /api/v2/parse/*/cancel",
    "drop-job": "DELETE /api/v2/parse/*",
    "drop-file": "DELETE /api/v1/beta/files/*",
}
# Where it goes wrong while the worker is on its way there, and where the last worker died.
ON_THE_WAY = {"upload": "job_validated:begin", "submit": "job_validated:uploaded", "poll": "parsing:begin"}
DIED_AT = {"find-job": "job_validated:submitted", "find-file": "job_validated:uploaded"}
CELLS = list(fault_matrix.cells(TABLE))


@pytest.fixture
def vendor(settings: Any) -> Iterator[LlamaParseServer]:
    with LlamaParseServer() as server:
        settings.PARSER = "llamaparse"
        settings.LLAMAPARSE_API_KEY = server.key
        settings.LLAMAPARSE_BASE_URL = server.url
        settings.PARSE_POLL_FIRST_SECONDS = 0.0
        settings.JOBS_PIPELINES = "testing.stub_pipelines.PARSE_ONLY"
        yield server
    fault_matrix.forget_parser()


class Clock:
    """How long a call may take."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def set(self, seconds: float) -> None:
        self._settings.VENDOR_TIMEOUT_SECONDS = seconds
        fault_matrix.forget_parser()  # a client keeps the time that it was made with


@pytest.fixture
def clock(settings: Any) -> Clock:
    clock = Clock(settings)
    clock.set(PATIENT)
    return clock


def test_the_table_is_complete() -> None:
    kinds = {*faults_for("llamaparse"), *faults_for("llamaparse-result"), *MORE_KINDS}

    assert fault_matrix.kinds(TABLE) == kinds
    assert {site for _, site in fault_matrix.read(TABLE)} == set(ROUTES)
    assert len(faults_for("llamaparse")) >= 25


@pytest.mark.parametrize(("kind", "site", "word"), [cell for cell in CELLS if not cell.id.startswith("drop")])
def test_a_parse_ends_as_the_table_says_and_is_sold_once(
    kind: str,
    site: str,
    word: str,
    ana: Person,
    vendor: LlamaParseServer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault_matrix.listen(caplog)
    uploaded = ana.upload(PDF, filename=f"{CANARY}.pdf")

    watch = fault_matrix.Stopwatch()
    ran = _ran(kind, site, uploaded, vendor, clock, monkeypatch)

    natural = OUTCOMES["timeout"].dead if site == "cancel" else None
    expected = OUTCOMES[word]
    dead = expected.dead or natural
    assert ran.outcome == expected._replace(dead=dead)
    assert fault_matrix.consumed(vendor), "it never went wrong"
    bought_before = site in ("find-job", "poll", "cancel")
    sold = 0 if dead and not bought_before else 1
    assert (vendor.ledger.sold, vendor.ledger.repeated) == (sold, 0)
    assert len(vendor.files) == (0 if dead and site == "upload" else 1)
    assert Purchase.objects.filter(vendor="llamaparse").count() == sold, "the books are not what was sold"
    if dead is None:
        assert set(Purchase.objects.values_list("state", "cents")) == {("settled", PAGE_CENTS)}
        assert uploaded.job.cost_cents == PAGE_CENTS
    assert fault_matrix.leaks(caplog, KEY, ana.token) == []
    assert kind not in fault_matrix.SLOW or watch.seconds < 25  # the slowest response would take 30 and more


def _ran(
    kind: str, site: str, uploaded: Upload, vendor: LlamaParseServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Ran:
    if site in DIED_AT:
        fault_matrix.die(claim_at_stage("job_validated"), DIED_AT[site], monkeypatch)
    if site == "cancel":
        vendor.delay = 1000
        run_all_jobs(1)
        ParseRequest.objects.update(deadline="2020-01-01T00:00Z")

    def go_wrong() -> None:
        if site == "poll":
            _let_it_finish(vendor)
        if kind in SLOW:
            clock.set(QUICK)
        fault_matrix.inject_fault(vendor, ROUTES[site], kind)

    def be_well() -> None:
        assert fault_matrix.consumed(vendor), "it never went wrong"
        vendor.clear_faults()
        clock.set(PATIENT)

    if site in ON_THE_WAY:
        fault_matrix.at(monkeypatch, ON_THE_WAY[site], go_wrong)
    else:
        go_wrong()
    return fault_matrix.run(uploaded.job, be_well)


def _let_it_finish(vendor: LlamaParseServer) -> None:
    until = time.monotonic() + 5
    while any(job.status != "COMPLETED" for job in vendor.jobs.values()) and time.monotonic() < until:
        time.sleep(0.005)


# The vendor's copies of a deleted document

REASONS = {"limited": "VENDOR_RATE_LIMITED", "quota": "VENDOR_QUOTA_EXHAUSTED", "key": "VENDOR_REFUSES_KEY"}
FAULTS = {"fault", "silence", "invalid"}


@pytest.mark.parametrize(("kind", "site", "word"), [cell for cell in CELLS if cell.id.startswith("drop")])
def test_the_vendors_copy_is_deleted_sooner_or_later(
    kind: str,
    site: str,
    word: str,
    ana: Person,
    vendor: LlamaParseServer,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault_matrix.listen(caplog)
    uploaded = ana.ingest(PDF, filename=f"{CANARY}.pdf")
    run_all_jobs(2)
    ana.delete(f"/documents/{uploaded.document_id}")
    if kind in SLOW:
        clock.set(QUICK)
    fault_matrix.inject_fault(vendor, ROUTES[site], kind)

    watch = fault_matrix.Stopwatch()
    _forget()
    first = watch.seconds
    stored_state, paused = (
        _kept(),
        RateLimit.objects.exclude(paused_until=None).values_list("pause_reason", flat=True).first(),
    )
    faults = sum(Breaker.objects.values_list("faults", flat=True))
    assert fault_matrix.consumed(vendor), "it never went wrong"
    vendor.clear_faults()
    clock.set(PATIENT)
    fault_matrix.let_vendors_rest()
    _forget()

    assert (stored_state, paused, faults) == (word != "done", REASONS.get(word), int(word in FAULTS))
    assert not _kept()
    believed = kind == "status-404"  # it says that it has none; whether it lies cannot be known
    assert len(vendor.jobs) + len(vendor.files) == int(believed)
    assert vendor.ledger.sold == 1
    assert fault_matrix.leaks(caplog, KEY, ana.token) == []
    assert first < 5


def _forget() -> None:
    ObjectDeletion.objects.update(try_after="2020-01-01T00:00Z")
    periodic.delete_vendor_copies()


def _kept() -> bool:
    return ObjectDeletion.objects.filter(path__startswith="llamaparse").exists()
