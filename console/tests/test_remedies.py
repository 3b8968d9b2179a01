"""What is said of a code depends on whose job it is."""

from __future__ import annotations

import pytest
from django.test import Client

from console import dead_letters, remedies
from console.tests.test_job_page import at
from documents.parsers.refusals import FAILURES
from testing.factories import JobFactory

SHARED = sorted({*remedies.FAILED} & {*remedies.laws.FAILED})


@pytest.mark.parametrize("code", SHARED)
def test_a_code_of_uploads_and_laws_is_told_of_each_in_its_own_words(code: str) -> None:
    assert remedies.of(code, "statute") == remedies.laws.FAILED[code]
    assert remedies.of(code, "insurance") == remedies.of(code) == remedies.FAILED[code]
    assert remedies.FAILED[code] != remedies.laws.FAILED[code]


def test_what_one_kind_of_job_alone_fails_of_is_known_everywhere() -> None:
    assert remedies.of("NO_ARTICLES") == remedies.laws.FAILED["NO_ARTICLES"]
    assert remedies.of("WORKER_LOST", "statute") == remedies.FAILED["WORKER_LOST"]
    assert remedies.of_wait("MORE_URGENT_LAW") == remedies.laws.WAITING["MORE_URGENT_LAW"]
    assert remedies.of(None, "statute") == remedies.of("NEVER_HEARD_OF") == remedies.UNKNOWN


def test_nothing_of_laws_sends_staff_to_a_tenant() -> None:
    told = [known for table in remedies.laws.TABLES for known in table.values()]

    assert [known for known in told if "tenant" in known.meaning + known.remedy] == []


@pytest.mark.parametrize("code", sorted({code for _, code, _ in FAILURES.values()}))
def test_what_reading_any_pdf_ends_in_is_told_of_laws_in_words_of_laws(code: str) -> None:
    assert "ask for" not in remedies.of(code, "statute").remedy.casefold()
    assert "tenant" not in remedies.of(code, "statute").remedy


def test_the_page_of_a_law_s_job_says_what_to_do_about_a_law(sue: Client) -> None:
    error = {"code": "EMPTY_FILE", "detail": "The file is empty.", "stage": "queued", "attempt": 1}
    job = JobFactory.create(stage="queued", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    page = sue.get(at(job)).content.decode()

    assert remedies.laws.FAILED["EMPTY_FILE"].remedy in page
    assert remedies.FAILED["EMPTY_FILE"].remedy not in page


def test_a_group_of_dead_laws_says_what_to_do_about_laws(sue: Client) -> None:
    error = {"code": "PARSER_OUT_OF_MEMORY", "detail": "x", "stage": "parsing", "attempt": 1}
    JobFactory.create(stage="parsing", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    [group] = dead_letters.groups()

    assert group.remedy == remedies.laws.FAILED["PARSER_OUT_OF_MEMORY"]
