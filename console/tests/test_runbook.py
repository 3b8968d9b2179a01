"""What is said of a code depends on whose job it is."""

from __future__ import annotations

import pytest
from django.test import Client

from console import dead_letters, runbook
from console.tests.test_job_page import at
from documents.parsers.errors import FAILURES
from testing.factories import JobFactory

SHARED = sorted({*runbook.FAILED} & {*runbook.statutes.FAILED})


@pytest.mark.parametrize("code", SHARED)
def test_a_code_of_uploads_and_laws_is_told_of_each_in_its_own_words(code: str) -> None:
    assert runbook.of(code, "statute") == runbook.statutes.FAILED[code]
    assert runbook.of(code, "insurance") == runbook.of(code) == runbook.FAILED[code]
    assert runbook.FAILED[code] != runbook.statutes.FAILED[code]


def test_what_one_kind_of_job_alone_fails_of_is_known_everywhere() -> None:
    assert runbook.of("NO_ARTICLES") == runbook.statutes.FAILED["NO_ARTICLES"]
    assert runbook.of("WORKER_LOST", "statute") == runbook.FAILED["WORKER_LOST"]
    assert runbook.of_wait("MORE_URGENT_LAW") == runbook.statutes.WAITING["MORE_URGENT_LAW"]
    assert runbook.of(None, "statute") == runbook.of("NEVER_HEARD_OF") == runbook.UNKNOWN


def test_nothing_of_laws_sends_staff_to_a_tenant() -> None:
    told = [known for table in runbook.statutes.TABLES for known in table.values()]

    assert [known for known in told if "tenant" in known.meaning + known.remedy] == []


@pytest.mark.parametrize("code", sorted({code for _, code, _ in FAILURES.values()}))
def test_what_reading_any_pdf_ends_in_is_told_of_laws_in_words_of_laws(code: str) -> None:
    assert "ask for" not in runbook.of(code, "statute").remedy.casefold()
    assert "tenant" not in runbook.of(code, "statute").remedy


def test_the_page_of_a_law_s_job_says_what_to_do_about_a_law(sue: Client) -> None:
    error = {"code": "EMPTY_FILE", "detail": "The file is empty.", "stage": "queued", "attempt": 1}
    job = JobFactory.create(stage="queued", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    page = sue.get(at(job)).content.decode()

    assert runbook.statutes.FAILED["EMPTY_FILE"].remedy in page
    assert runbook.FAILED["EMPTY_FILE"].remedy not in page


def test_a_group_of_dead_laws_says_what_to_do_about_laws(sue: Client) -> None:
    error = {"code": "PARSER_OUT_OF_MEMORY", "detail": "x", "stage": "parsing", "attempt": 1}
    JobFactory.create(stage="parsing", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    [group] = dead_letters.groups()

    assert group.remedy == runbook.statutes.FAILED["PARSER_OUT_OF_MEMORY"]
