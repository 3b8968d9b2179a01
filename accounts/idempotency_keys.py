"""Idempotency keys: a POST that is repeated under the same ``Idempotency-Key`` has its effect once."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connection

from accounts.common_error_codes import IDEMPOTENCY_KEY_REUSED, INVALID_REQUEST
from accounts.errors import ApiError

if TYPE_CHECKING:
    from rest_framework.request import Request

HEADER = "Idempotency-Key"
KEY = re.compile(r"[!-~]{1,255}")  # printable ASCII without spaces
KEEP_SECONDS = 86_400.0

# A concurrent twin waits here for the other's commit. An expired key is a new one, deleted yet or not.
RECORD = """
    INSERT INTO idempotency_keys AS k (user_id, route, key, body_sha256, expires_at)
    VALUES (%(user)s, %(route)s, %(key)s, %(body)s, clock_timestamp() + make_interval(secs => %(seconds)s))
    ON CONFLICT (user_id, route, key) DO UPDATE SET
        body_sha256 = CASE WHEN k.expires_at < clock_timestamp() THEN excluded.body_sha256 ELSE k.body_sha256 END,
        expires_at = CASE WHEN k.expires_at < clock_timestamp() THEN excluded.expires_at ELSE k.expires_at END
    RETURNING body_sha256"""
FIND = """
    SELECT body_sha256 FROM idempotency_keys
    WHERE user_id = %(user)s AND route = %(route)s AND key = %(key)s AND expires_at >= clock_timestamp()"""


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an idempotency key, which belongs to one user and one route."""

    user_id: UUID
    route: str
    key: str
    body_sha256: str

    def record(self) -> None:
        """Record the key in the transaction of the request's effect; raise ``ApiError`` if it had another body."""
        self._execute(RECORD)

    def is_repeated(self) -> bool:
        """Tell whether the request has taken effect before; raise ``ApiError`` if the key had another body."""
        return self._execute(FIND)

    def _execute(self, sql: str) -> bool:
        params: dict[str, UUID | str | float] = {
            "user": self.user_id, "route": self.route, "key": self.key, "body": self.body_sha256,
            "seconds": KEEP_SECONDS,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            known = cursor.fetchone()
        if known and known[0] != self.body_sha256:
            raise ApiError(IDEMPOTENCY_KEY_REUSED, field=HEADER)
        return known is not None


def idempotent_request(
    request: "Request", *, user_id: UUID, route: str, body: Mapping[str, Any]
) -> IdempotentRequest | None:
    """Return the request's key with a digest of its validated ``body``, or None if the header is missing."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not KEY.fullmatch(key):
        detail = f"{HEADER} takes 1 to 255 printable ASCII characters without spaces."
        raise ApiError(INVALID_REQUEST, detail, field=HEADER)
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()
    return IdempotentRequest(user_id, route, key, digest)
