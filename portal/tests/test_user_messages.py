"""Messages for tenants: steps, sync problems, pauses, headlines."""

from itertools import pairwise

import pytest

from accounts.errors import ApiError, Context, error_codes
from accounts.rate_limit import UPLOAD_LIMIT_REACHED
from embeddings.error_codes import K_OUT_OF_RANGE
from jobs.choices import Stage
from portal.document_status import STEPS
from portal.user_messages import CONNECTIONS, error_message, format_pause, headline, sync_problem


def test_every_stage_belongs_to_one_step() -> None:
    every = [stage for _, stages in STEPS for stage in stages]

    assert sorted(every) == sorted(Stage)


def test_sync_problems_are_sentences_with_the_providers_name() -> None:
    problems = [sync_problem(code, "hubspot").sentence for code in error_codes(Context.SYNC_FAILURE)]

    assert [
        text for text in (*problems, *CONNECTIONS.values()) if not str(text).endswith(".") or "{" in str(text)
    ] == []
    assert any("HubSpot" in text for text in problems)


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [(0.2, "in 1 second"), (1, "in 1 second"), (40, "in 40 seconds"), (240, "in 4 minutes"), (86_000, "in 24 hours")],
)
def test_pauses_are_rounded_to_readable_units(seconds: float, sentence: str) -> None:
    assert format_pause(seconds) == sentence


def test_longer_pauses_never_read_as_shorter() -> None:
    minutes = [
        int(format_pause(seconds).split()[1]) for seconds in range(100, 5000, 60) if "minute" in format_pause(seconds)
    ]

    assert all(earlier <= later for earlier, later in pairwise(minutes))


def test_an_error_without_tenant_message_shows_the_api_detail() -> None:
    detail = "k must be between 1 and 50."

    assert error_message(ApiError(K_OUT_OF_RANGE, detail)) == detail
    assert error_message(ApiError(UPLOAD_LIMIT_REACHED, "x", retry_after=7200)).endswith("Come back in 2 hours.")


@pytest.mark.parametrize("status", [400, 404, 418, 429, 503, 507])
def test_every_status_has_a_headline(status: int) -> None:
    assert headline(status)
