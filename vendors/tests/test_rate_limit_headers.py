"""Rate-limit headers: Go's durations, seconds, milliseconds, dates."""

import time
from email.utils import formatdate

import pytest

from vendors import rate_limit_headers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12ms", 0.012),
        ("1s", 1),
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("8.64s", 8.64),
        ("500us", 0.0005),
        ("7", 7),
        ("0s", 0),
        ("", None),
        (None, None),
        ("soon", None),
        ("-1s", None),
        ("1s2", None),
        ("1d", None),
        ("nan", None),
        ("inf", None),
        ("1h" * 10_000, None),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str | None, seconds: float | None) -> None:
    assert (
        rate_limit_headers.parse_duration(text) == pytest.approx(seconds)
        if seconds is not None
        else rate_limit_headers.parse_duration(text) is None
    )


def test_a_date_counts_from_the_vendors_own_clock() -> None:
    headers = {"Date": "Sun, 06 Nov 1994 08:49:37 GMT", "Retry-After": "Sun, 06 Nov 1994 08:50:07 GMT"}

    assert rate_limit_headers.retry_after(headers) == 30


def test_a_date_without_the_vendors_clock_counts_from_ours() -> None:
    waits = rate_limit_headers.retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})

    assert waits == pytest.approx(30, abs=2)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "nonsense"}, None),
        ({"retry-after": "Sun, 99 Nov 1994 08:49:37 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1", "retry-after-ms": "2500"}, 2.5),
        ({"Retry-After": "3", "X-RateLimit-Reset-Requests": "1s"}, 3),
        ({"retry-after": "1e300"}, 600),
    ],
)
def test_the_longest_wait_counts(headers: dict[str, str], seconds: float | None) -> None:
    assert rate_limit_headers.retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("requests", "tokens", "seconds"),
    [("0", "0", 360), ("0", "5", 1.5), ("3", "0", 360), ("3", "5", None), ("x", "", None)],
)
def test_only_a_used_up_allowance_has_a_reset(requests: str, tokens: str, seconds: float | None) -> None:
    headers = {
        "x-ratelimit-remaining-requests": requests,
        "x-ratelimit-remaining-tokens": tokens,
        "x-ratelimit-reset-requests": "1.5s",
        "x-ratelimit-reset-tokens": "6m0s",
    }

    assert rate_limit_headers.quota_reset(headers) == seconds
