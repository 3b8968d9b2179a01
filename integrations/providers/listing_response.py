"""Reading what a listing answers: another shape than the documented one is the vendor's trouble, and may pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from integrations.providers import CapabilityMissing
from jobs.outcomes import Retryable
from vendors.errors import INVALID
from vendors.guard import DETAILS


class UnreadableResponse(Retryable):
    """A page that is not what the provider's documentation shows. Never taken for an empty one: that would delete."""

    def __init__(self) -> None:
        super().__init__(INVALID, DETAILS[INVALID])


def required_text(said: Mapping[str, Any], name: str) -> str:
    """Return a string that must be there; a number is taken for one, as Google tells them."""
    found = said.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not found:
        raise UnreadableResponse
    return found


def object_list(said: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; Google leaves out one that is empty."""
    found = said.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UnreadableResponse
    return found


def require_any(said: Mapping[str, Any], *names: str) -> None:
    """Raise unless the answer is a listing: one of another shape must not pass for an empty one, which buries all."""
    if not any(name in said for name in names):
        raise UnreadableResponse


def next_page_token(said: Mapping[str, Any]) -> str | None:
    return required_text(said, "nextPageToken") if said.get("nextPageToken") else None


def require_method(method: str, *known: str) -> None:
    """Raise ``CapabilityMissing`` for a method that the provider does not have."""
    if method not in known:
        raise CapabilityMissing(method)
