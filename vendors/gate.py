"""The way to a vendor: a shared budget, a shared breaker, and one place that turns an answer into an outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vendors.vendors import Vendor


def admit(vendor: Vendor, *, tokens: int = 0) -> None:
    """Let one call of ``tokens`` through, or raise ``Postponed``: breaker open, told to pause, budget used up."""
    raise NotImplementedError


def succeeded(vendor: Vendor, headers: Mapping[str, str] | None = None) -> None:
    """Tell the breaker that the vendor answered, and the budget what its rate-limit headers say."""
    raise NotImplementedError


def failed(vendor: Vendor, error: Exception) -> Exception:
    """Tell the breaker and the budget of a failed call; return what to raise: Postponed, Retryable or Permanent."""
    raise NotImplementedError


@contextmanager
def calling(vendor: Vendor, *, tokens: int = 0) -> Iterator[None]:
    """Admit a call, and report how it went: ``admit``, then ``succeeded`` or ``failed``."""
    admit(vendor, tokens=tokens)
    try:
        yield
    except Exception as error:
        raise failed(vendor, error) from error
    succeeded(vendor)


def is_open(vendor: Vendor) -> bool:
    """Tell whether the vendor's breaker keeps calls back at present."""
    raise NotImplementedError
