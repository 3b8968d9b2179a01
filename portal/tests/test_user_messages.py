"""Everything that a document may wait for or fail of has a sentence for its tenant."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from django.conf import settings

from console import runbook
from documents.parsers.errors import FAILURES
from documents.parsing.parse_requests import GIVEN_UP
from jobs.states import Stage
from portal import user_messages
from portal.document_status import STEPS
from portal.user_messages import FAILED, WAITING, headline, pause, refusal
from testing.error_codes import failures_in_source, waits_in_source
from vendors import guard

# Named by a variable where they are raised: read from the tables that the variable comes from.
BY_VARIABLE = {
    *(code for _, code, _ in FAILURES.values()),
    *(code for code, _ in GIVEN_UP.values()),
    *guard.DETAILS,
}


def test_every_reason_to_wait_has_a_sentence() -> None:
    named = {guard.AWAY, guard.LIMITED, guard.QUOTA, guard.KEY, "VENDOR_BUDGET", "BUDGET_SPENT", "MODEL_UNAVAILABLE"}

    assert waits_in_source() >= {"WAITING_FOR_UPLOAD", "WAITING_FOR_PARSER", "OCR_CONTINUES", "GAVE_WAY"}
    assert (waits_in_source() | named) - set(WAITING) == set()


def test_every_failure_has_a_sentence() -> None:
    written = {
        "VENDOR_REFUSED",
        "BUDGET_TOO_SMALL",
        "WORKER_LOST",
        "CANCELLED",
        "SUPERSEDED",
        "TEXT_REFUSED",
        "internal",
    }

    assert failures_in_source() >= {"NO_CHUNKS", "TOO_MANY_PAGES", "UPLOAD_EXPIRED"}
    assert (failures_in_source() | BY_VARIABLE | written) - set(FAILED) == set()


def test_what_is_written_into_last_error_by_hand_has_a_sentence() -> None:
    source = "".join(Path(settings.BASE_DIR, "jobs", name).read_text() for name in ("services.py", "repairs.py"))
    by_hand = set(re.findall(r'"code": "(\w+)"', source)) | set(re.findall(r'code="([A-Z_]+)", detail', source))

    assert {"CANCELLED", "WORKER_LOST"} <= by_hand <= set(FAILED)


def test_tenants_and_staff_are_told_of_the_same_codes() -> None:
    assert set(FAILED) == set(runbook.FAILED)
    assert set(WAITING) == set(runbook.WAITING)
    assert set(user_messages.SYNC_FAILED) == set(runbook.SYNC_FAILED)


def test_every_stage_belongs_to_one_step() -> None:
    every = [stage for _, stages in STEPS for stage in stages]

    assert sorted(every) == sorted(Stage)


def test_sentences_are_sentences_and_show_no_code() -> None:
    every = [*WAITING.values(), *(told.sentence for told in FAILED.values()), *user_messages.REFUSED.values()]
    every += [told.sentence for told in user_messages.SYNC_FAILED.values()] + [*user_messages.CONNECTIONS.values()]

    assert [text for text in every if not text.endswith((".", "?")) or re.search(r"[A-Z]{3,}_", text)] == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "in 1 second"), (1, "in 1 second"), (40, "in 40 seconds"), (240, "in 4 minutes"), (86_000, "in 24 hours")],
)
def test_when_to_come_back_is_said_in_the_unit_that_people_use(seconds: float, said: str) -> None:
    assert pause(seconds) == said


def test_longer_waits_are_never_said_to_be_shorter() -> None:
    minutes = [int(pause(seconds).split()[1]) for seconds in range(100, 5000, 60) if "minute" in pause(seconds)]

    assert all(earlier <= later for earlier, later in pairwise(minutes))


def test_a_refusal_that_has_no_sentence_here_is_told_in_the_services_own_words() -> None:
    assert refusal("K_OUT_OF_RANGE", "k must be between 1 and 50.", None) == "k must be between 1 and 50."
    assert refusal("UPLOAD_LIMIT_REACHED", "x", 7200).endswith("Come back in 2 hours.")


@pytest.mark.parametrize("status", [400, 404, 418, 429, 503, 507])
def test_every_status_has_a_headline(status: int) -> None:
    assert headline(status)
