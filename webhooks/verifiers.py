"""Callback signature verifiers, one for each scheme; nothing here reads the database.

``verify`` raises ``INVALID_SIGNATURE`` without naming what is wrong, before any JSON is read.
"""

import hmac
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from standardwebhooks import Webhook

from accounts.errors import ApiError
from vendors.webhook_secrets import standard_key
from webhooks import payloads
from webhooks.error_codes import INVALID_SIGNATURE
from webhooks.payloads import Payload

Headers = Mapping[str, str]

WINDOW_SECONDS = 300.0
# No full stop: it parts the id from the time in the signed text, so an id with one could be read in two ways.
MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
UNIX_TIME = re.compile(r"[1-9][0-9]{0,10}")


@dataclass(frozen=True, slots=True)
class VerifiedCallback:
    """A callback with a valid signature. ``message_id`` is the same in each repetition of the same message."""

    scheme: str
    message_id: str
    payload: Payload


class StandardWebhooks:
    """``webhook-signature`` over ``{id}.{timestamp}.{body}`` (standardwebhooks.com)."""

    scheme = "standard-webhooks"
    headers = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})

    def __init__(self) -> None:
        self._decode_lock = threading.Lock()

    def verify(self, headers: Headers, body: bytes, *, secrets: Sequence[str], now: float) -> VerifiedCallback:
        message_id, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not MESSAGE_ID.fullmatch(message_id) or not UNIX_TIME.fullmatch(seconds) or not _is_fresh(int(seconds), now):
            raise ApiError(INVALID_SIGNATURE)
        expected = self._signatures(message_id, int(seconds), body, secrets)
        if not _any_equal(headers.get("webhook-signature", "").split(" "), expected):
            raise ApiError(INVALID_SIGNATURE)
        return VerifiedCallback(self.scheme, message_id, payloads.parse_body(body))

    def _signatures(self, message_id: str, seconds: int, body: bytes, secrets: Sequence[str]) -> list[str]:
        """Return the library's signature by each secret.

        Its ``verify`` is not used: garbage makes it raise ValueError, and base64 that it reads leniently lets several
        texts pass for one signature.
        """
        sent_at = datetime.fromtimestamp(seconds, tz=UTC)
        keys = [key for secret in secrets if (key := standard_key(secret))]
        # The library copies the body as text, up to eight times as large, for any sender: not for many at once.
        with self._decode_lock:
            try:
                text = body.decode()
            except UnicodeDecodeError:
                raise ApiError(INVALID_SIGNATURE) from None
            return [Webhook(key).sign(message_id, sent_at, text) for key in keys]


class LlamaCloud:
    """``LC-Signature`` over the body alone: id and time are the body's own (developers.llamaindex.ai, Webhooks)."""

    scheme = "llamacloud"
    headers = frozenset({"lc-signature"})

    def verify(self, headers: Headers, body: bytes, *, secrets: Sequence[str], now: float) -> VerifiedCallback:
        expected = ["sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest() for secret in secrets]
        if not _any_equal([headers.get("lc-signature", "")], expected):
            raise ApiError(INVALID_SIGNATURE)
        payload = payloads.parse_body(body)
        message_id, sent_at = payloads.string_field(payload, "event_id"), payload.get("timestamp")
        if isinstance(sent_at, bool) or not isinstance(sent_at, int | float):
            raise payloads.invalid_payload("timestamp")
        if not _is_fresh(sent_at, now):  # LlamaCloud repeats within seconds: an older one is a replay
            raise ApiError(INVALID_SIGNATURE)
        return VerifiedCallback(self.scheme, message_id, payload)


VERIFIERS = (StandardWebhooks(), LlamaCloud())


def select_verifier(headers: Headers) -> StandardWebhooks | LlamaCloud:
    """Return the verifier whose headers are present; a request with those of two schemes is refused."""
    names = {name.lower() for name in headers}
    verifiers = [verifier for verifier in VERIFIERS if verifier.headers & names]
    if len(verifiers) != 1:
        raise ApiError(INVALID_SIGNATURE)
    return verifiers[0]


def _is_fresh(sent_at: float, now: float) -> bool:
    # No difference is computed: an integer may be too large for one.
    return now - WINDOW_SECONDS <= sent_at <= now + WINDOW_SECONDS


def _any_equal(signatures: Sequence[str], expected: Sequence[str]) -> bool:
    """Compare in constant time, as bytes: text that is not ASCII would raise."""
    pairs = [(one.encode(errors="replace"), other.encode()) for one in signatures for other in expected]
    return any(hmac.compare_digest(one, other) for one, other in pairs)
