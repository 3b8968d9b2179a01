"""Error codes: each is declared once, has its messages and its remedy, and stands in the guides."""

import os
import re

import pytest
from django.core.exceptions import ImproperlyConfigured

from accessa.tests.test_openapi_schema import schema
from accounts.errors import ApiError, Context, ErrorCode, error_codes, find_error_code
from documents.parsers.failures import FAILURES
from jobs.choices import CANCELLED_CODES
from jobs.outcomes import Permanent
from testing.error_tables import GUIDES, insert_tables, schema_codes

TENANTS = (Context.WAIT, Context.FAILURE, Context.SYNC_FAILURE)
ALL = [code for context in Context for code in error_codes(context).values()]


def test_a_code_is_declared_once() -> None:
    with pytest.raises(ImproperlyConfigured, match="EMPTY_FILE is declared twice for failure"):
        ErrorCode("EMPTY_FILE", context=Context.FAILURE)


def test_an_error_raised_without_a_sentence_has_the_declared_one() -> None:
    code = error_codes(Context.FAILURE)["NO_CHUNKS"]

    assert Permanent(code).detail == code.tenant_message
    assert ApiError(error_codes(Context.REQUEST)["EMPTY_QUERY"]).body == {
        "code": "EMPTY_QUERY",
        "detail": "The query is empty.",
    }


@pytest.mark.parametrize("context", TENANTS)
def test_every_job_and_sync_code_has_messages_for_tenants_and_staff(context: Context) -> None:
    assert len(error_codes(context)) > 10
    assert [code for code in error_codes(context).values() if not (code.tenant_message and code.remedy)] == []


@pytest.mark.parametrize("context", [context for context in Context if context != Context.REQUEST])
def test_staff_see_meaning_and_remedy_of_each_code(context: Context) -> None:
    assert [code for code in error_codes(context).values() if not (code.meaning and code.remedy)] == []


def test_messages_are_sentences_and_show_no_code() -> None:
    messages = [str(text) for code in ALL for text in (code.tenant_message, code.detail) if text]

    assert [text for text in messages if not text.endswith((".", "?")) or re.search(r"[A-Z]{3,}_", text)] == []


def test_what_the_sandbox_reports_is_declared() -> None:
    of_pdfs = {code for _, code, _ in FAILURES.values()}

    assert of_pdfs | set(CANCELLED_CODES) <= error_codes(Context.FAILURE).keys()
    assert of_pdfs <= error_codes(Context.STATUTE_FAILURE).keys()


def test_every_code_is_documented() -> None:
    guides = "".join(path.read_text(encoding="utf-8") for path in GUIDES)
    of_pages = {
        "UNREADABLE", "INSECURE", "UNREACHABLE", "REFUSED_BY_STORE", "DOWNLOAD_TOO_LARGE", "STAFF_ACCOUNT",
        "OIDC_EXPIRED", "OIDC_REFUSED", "OIDC_EMAIL_UNVERIFIED", "OIDC_NOT_CONNECTED", "OIDC_IN_USE", "SIGN_UP_CLOSED",
    }  # fmt: skip

    assert {code for code in ALL if f"`{code}`" not in guides} <= of_pages


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_the_tables_of_the_guides_are_current(path: object) -> None:
    """With DOCS=write they are written."""
    guide = next(each for each in GUIDES if each == path)

    current = insert_tables(guide.read_text(encoding="utf-8"), schema())

    if os.environ.get("DOCS") == "write":
        guide.write_text(current, encoding="utf-8")
    assert guide.read_text(encoding="utf-8") == current


def test_the_schema_answers_declared_codes_only() -> None:
    assert len(schema_codes(schema())) > 60
    assert all(
        find_error_code(code, Context.REQUEST, Context.FAILURE, Context.WAIT, Context.CALLBACK)
        for code in schema_codes(schema())
    )
