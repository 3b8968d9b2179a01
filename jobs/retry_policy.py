"""Retry policy: how often a failed stage is retried, and the delays between its attempts."""

from datetime import timedelta

from django.conf import settings


def retry_delay(attempts: int, floor: float = 0.0) -> timedelta | None:
    """Return the delay after that many attempts: 3, 6 and 12 s (RFC001, 002 §14), or ``floor`` if longer; then None."""
    if attempts > settings.JOBS_MAX_RETRIES:
        return None
    return timedelta(seconds=max(settings.JOBS_RETRY_BASE_SECONDS * 2 ** (attempts - 1), floor))
