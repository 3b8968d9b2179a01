"""The runbook shows the remedy of the job's own pipeline."""

import pytest
from django.test import Client

from accounts.common_error_codes import UNDECLARED
from accounts.errors import Context, error_codes
from console import dead_letter_groups
from console.remedies import find_failure, find_wait
from console.tests.test_job_page import at
from documents.parsers.failures import FAILURES
from testing.factories import JobFactory

DOCUMENTS, STATUTES = error_codes(Context.FAILURE), error_codes(Context.STATUTE_FAILURE)


@pytest.mark.parametrize("code", sorted(DOCUMENTS.keys() & STATUTES.keys()))
def test_a_code_of_uploads_and_statutes_has_a_remedy_for_each(code: str) -> None:
    assert find_failure(code, "statute") is STATUTES[code]
    assert find_failure(code, "insurance") is find_failure(code) is DOCUMENTS[code]
    assert DOCUMENTS[code].meaning != STATUTES[code].meaning
    assert DOCUMENTS[code].remedy != STATUTES[code].remedy


def test_a_code_of_one_pipeline_is_known_for_all() -> None:
    assert find_failure("NO_ARTICLES") is STATUTES["NO_ARTICLES"]
    assert find_failure("WORKER_LOST", "statute") is DOCUMENTS["WORKER_LOST"]
    assert find_wait("MORE_URGENT_LAW") is error_codes(Context.STATUTE_WAIT)["MORE_URGENT_LAW"]
    assert find_failure(None, "statute") is find_failure("NEVER_HEARD_OF") is UNDECLARED


def test_no_remedy_for_statutes_sends_staff_to_a_tenant() -> None:
    contexts = (Context.STATUTE_FAILURE, Context.STATUTE_WAIT, Context.CONSUMER_WAIT)
    codes = [code for context in contexts for code in error_codes(context).values()]

    assert [code for code in codes if "tenant" in f"{code.meaning}{code.remedy}"] == []


@pytest.mark.parametrize("code", sorted({code for _, code, _ in FAILURES.values()}))
def test_no_failure_of_a_statutes_pdf_asks_somebody_for_a_file(code: str) -> None:
    remedy = str(find_failure(code, "statute").remedy)

    assert "ask for" not in remedy.casefold()
    assert "tenant" not in remedy


def test_the_page_of_a_statutes_job_has_the_remedy_for_statutes(sue: Client) -> None:
    error = {"code": "EMPTY_FILE", "detail": "The file is empty.", "stage": "queued", "attempt": 1}
    job = JobFactory.create(stage="queued", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    page = sue.get(at(job)).content.decode()

    assert str(STATUTES["EMPTY_FILE"].remedy) in page
    assert str(DOCUMENTS["EMPTY_FILE"].remedy) not in page


def test_a_group_of_dead_statutes_has_the_remedy_for_statutes(sue: Client) -> None:
    error = {"code": "PARSER_OUT_OF_MEMORY", "detail": "x", "stage": "parsing", "attempt": 1}
    JobFactory.create(stage="parsing", state="deadletter", pipeline="statute", attempts=1, last_error=error)

    [group] = dead_letter_groups.groups()

    assert group.remedy is STATUTES["PARSER_OUT_OF_MEMORY"]
