"""A law that is found and done anew: from other bytes it is there in part for a while, and never says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from accessa.audit import findings
from jobs import runner, services
from jobs.claims import Superseded
from jobs.states import Stage
from statutes import search
from statutes.intake import accept
from statutes.models import Law
from statutes.tests import lawbooks
from statutes.tests.lawbooks import LOWER, RATE, TAXED, arrived, articles, done, message, xml
from testing.people import Person, run_to_the_end, stages, stop_before
from testing.vendors.s3 import S3Server

pytestmark = pytest.mark.django_db
WHOLE = ("queued", "job_validated", "parsing", "parsed", "parse_validated", "chunking", "chunks_buffered")


def kinds() -> set[str]:
    return {found.kind for found in findings()} - {"vector"}


def test_done_anew_from_other_bytes_a_law_says_that_it_is_there_in_part(laws: S3Server, ana: Person) -> None:
    done(laws, xml(TAXED, RATE))
    arrived(laws, xml(TAXED, LOWER), force_reprocess=True)

    seen = {claim.job.stage: (Law.objects.get().status, *articles(TAXED, RATE, LOWER)) for claim in stages()}

    whole, partly = ("embedded", True, True, False), ("partial_failed", True, False, False)
    assert seen == {stage.value: whole if stage in WHOLE else partly for stage in Stage}
    assert (Law.objects.get().status, *articles(TAXED, RATE, LOWER)) == ("embedded", True, False, True)
    assert kinds() == set()


def test_who_searches_meanwhile_reads_that_passages_are_missing(laws: S3Server, ana: Person) -> None:
    done(laws, xml(TAXED, RATE))
    arrived(laws, xml(TAXED, LOWER), force_reprocess=True)
    stop_before("chunked")

    found = search.laws(user_id=ana.id, query="enajenación de bienes")

    assert {law.status for law in found} == {"partial_failed"}


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        (xml(TAXED, RATE), {"force_reprocess": True}),
        (xml(TAXED, RATE, LOWER), {"force_reprocess": True}),
        (xml(TAXED, LOWER), {"version": "2024-02"}),
    ],
    ids=["from the same bytes", "with an article more", "as a newer version"],
)
def test_done_anew_where_nothing_is_lost_the_law_stays_as_it_is(
    file: bytes, fields: dict[str, Any], laws: S3Server
) -> None:
    done(laws, xml(TAXED, RATE))
    before = Law.objects.values().get()
    arrived(laws, file, **fields)

    seen = [(Law.objects.values().get(), articles(TAXED, RATE)) for _ in stages()]

    assert len(seen) == len(Stage)
    assert all(shown == (before, [True, True]) for shown in seen)


def test_a_law_that_lost_passages_for_nothing_is_told_of_until_it_is_done_again(laws: S3Server) -> None:
    done(laws, xml(TAXED, RATE))
    sent = arrived(laws, xml(TAXED, LOWER), force_reprocess=True)
    stop_before("chunked")
    at_work = kinds()

    services.cancel(lawbooks.job_of(sent), by="sam")
    left = kinds(), Law.objects.get().status
    accept(message(force_reprocess=True))
    run_to_the_end()

    assert at_work == set()
    assert left == ({"law in part"}, "partial_failed")
    assert (kinds(), Law.objects.get().status) == (set(), "embedded")


def test_whoever_has_lost_the_job_says_nothing_of_the_law(laws: S3Server) -> None:
    done(laws, xml(TAXED, RATE))
    sent = arrived(laws, xml(TAXED, LOWER), force_reprocess=True)
    claim = stop_before("chunks_buffered")

    services.cancel(lawbooks.job_of(sent), by="sam")

    with pytest.raises(Superseded):
        runner.attempt(claim)
    assert (Law.objects.get().status, articles(TAXED, RATE)) == ("embedded", [True, True])
    assert kinds() == set()
