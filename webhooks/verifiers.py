"""Who signed a callback: one face, a verifier for each scheme. Nothing here reads the database."""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Protocol

from standardwebhooks import Webhook

from accounts.errors import ApiError
from vendors.webhook_secrets import standard_key
from webhooks import payloads
from webhooks.error_codes import INVALID_SIGNATURE
from webhooks.payloads import Payload

WINDOW_SECONDS = 300.0
# No full stop: it parts the id from the time in what is signed, so an id with one could be read in two ways.
ID = re.compile(r"[!-\-/-~]{1,256}")
SECONDS = re.compile(r"[1-9][0-9]{0,10}")


@dataclass(frozen=True, slots=True)
class VerifiedCallback:
    """A callback of somebody who has a secret. ``message_id`` is the same in each repetition of the same message."""

    scheme: str
    message_id: str
    payload: Payload


class Verifier(Protocol):
    scheme: str
    headers: frozenset[str]

    def verify(
        self, headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: float
    ) -> VerifiedCallback:
        """Raise ``Refused("INVALID_SIGNATURE")`` without a word of what was wrong, before any JSON is read."""


class StandardWebhooks:
    """``webhook-signature`` over ``{id}.{timestamp}.{body}`` (standardwebhooks.com)."""

    scheme = "standard-webhooks"
    headers = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()

    def verify(
        self, headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: float
    ) -> VerifiedCallback:
        message_id, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not ID.fullmatch(message_id) or not SECONDS.fullmatch(seconds) or not _fresh(int(seconds), now):
            raise invalid_signature()
        expected = self._signatures(message_id, int(seconds), body, secrets)
        if not _any_equal(headers.get("webhook-signature", "").split(" "), expected):
            raise invalid_signature()
        return VerifiedCallback(self.scheme, message_id, payloads.parse_body(body))

    def _signatures(self, message_id: str, seconds: int, body: bytes, secrets: Sequence[str]) -> list[str]:
        """Return the library's signature by each secret.

        Its ``verify`` is not used: garbage makes it raise ValueError, and base64 that it reads leniently lets several
        texts pass for one signature.
        """
        sent = datetime.fromtimestamp(seconds, tz=UTC)
        keys = [key for secret in secrets if (key := standard_key(secret))]
        # The library copies the body as text, up to eight times as large, for whoever sends one: not for many at once.
        with self._one_at_a_time:
            try:
                text = body.decode()
            except UnicodeDecodeError:
                raise invalid_signature() from None
            return [Webhook(key).sign(message_id, sent, text) for key in keys]


class LlamaCloud:
    """``LC-Signature`` over the body alone: id and time are the body's own (developers.llamaindex.ai, Webhooks)."""

    scheme = "llamacloud"
    headers = frozenset({"lc-signature"})

    def verify(
        self, headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: float
    ) -> VerifiedCallback:
        expected = ["sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest() for secret in secrets]
        if not _any_equal([headers.get("lc-signature", "")], expected):
            raise invalid_signature()
        payload = payloads.parse_body(body)
        message_id, sent = payloads.string_field(payload, "event_id"), payload.get("timestamp")
        if isinstance(sent, bool) or not isinstance(sent, int | float):
            raise payloads.invalid_payload("timestamp")
        if not _fresh(sent, now):  # it repeats within seconds: what is older was kept by somebody
            raise invalid_signature()
        return VerifiedCallback(self.scheme, message_id, payload)


VERIFIERS: tuple[Verifier, ...] = (StandardWebhooks(), LlamaCloud())


def select_verifier(headers: Mapping[str, str]) -> Verifier:
    """Return the verifier whose headers are there. Those of two schemes at once are nobody's: refused, not tried."""
    names = {name.lower() for name in headers}
    found = [verifier for verifier in VERIFIERS if verifier.headers & names]
    if len(found) != 1:
        raise invalid_signature()
    return found[0]


def invalid_signature() -> ApiError:
    """Say the same of everything that can be wrong with a signature."""
    return ApiError(INVALID_SIGNATURE)


def _fresh(sent: float, now: float) -> bool:
    return now - WINDOW_SECONDS <= sent <= now + WINDOW_SECONDS  # no difference: an integer may be too large for one


def _any_equal(given: Sequence[str], expected: Sequence[str]) -> bool:
    """Compare in constant time, as bytes: text that is not ASCII would raise."""
    pairs = [(one.encode(errors="replace"), other.encode()) for one in given for other in expected]
    return any(hmac.compare_digest(one, other) for one, other in pairs)
