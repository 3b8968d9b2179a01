"""Sender of webhooks: one signed POST within 15 s, to a public address, without redirects or a look at the answer."""

import json
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

import httpcore
import httpx
from cryptography.fernet import InvalidToken

from accounts import prepared_statements
from jobs.error_codes import BUG
from outbox import error_codes
from outbox.attempts import Attempt
from outbox.models import Message, WebhookEndpoint
from outbox.webhooks import endpoints
from outbox.webhooks.public_addresses import AddressRefused, resolve_allowed
from outbox.webhooks.signature import signature_headers
from vendors.http_deadline import deadline_transport
from vendors.rate_limit_headers import retry_after

TIMEOUT_SECONDS = 15.0  # whole, as Standard Webhooks advises 15 to 30
FAILING = timedelta(days=3)  # then an endpoint without a success is disabled
# After each failure the endpoint is left alone for longer: its backlog costs one attempt, not one for each message.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5, 300
WAITING_STATUSES = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)  # whose Retry-After is followed, up to 10 min
HEADERS = {"content-type": "application/json", "user-agent": "Accessa-Webhooks/1"}
OURS = (BUG, error_codes.WEBHOOK_SECRET_UNREADABLE, error_codes.WEBHOOK_DISABLED)  # say nothing of the receiver

SUCCEEDED = """
    UPDATE webhook_endpoints SET failures = 0, failing_since = NULL, paused_until = NULL
    WHERE id = %(endpoint)s AND failures > 0 RETURNING id"""
FAILED = """
    UPDATE webhook_endpoints e SET failures = failures + 1, updated_at = clock_timestamp(),
        failing_since = coalesce(failing_since, clock_timestamp()),
        paused_until = clock_timestamp() + make_interval(
            secs => greatest(%(asked)s, least(%(longest)s, %(first)s * 2 ^ least(failures, 10)))),
        enabled = n.disabled_code IS NULL, disabled_code = n.disabled_code
    FROM (SELECT id, CASE WHEN %(gone)s THEN %(gone_code)s
                          WHEN failing_since < clock_timestamp() - %(failing)s THEN %(failing_code)s
                     END AS disabled_code
          FROM webhook_endpoints WHERE id = %(endpoint)s FOR NO KEY UPDATE) n
    WHERE e.id = n.id AND e.enabled RETURNING e.id"""


def prepare(message: Message) -> Callable[[], Attempt]:
    endpoint = WebhookEndpoint.objects.filter(pk=message.target_id, user_id=message.user_id).first()
    if endpoint is None or not endpoint.enabled:
        return lambda: Attempt(error_codes.WEBHOOK_DISABLED, is_final=True)
    try:
        secrets = endpoints.signing_secrets(endpoint)
    except InvalidToken:
        return lambda: Attempt(error_codes.WEBHOOK_SECRET_UNREADABLE)
    return partial(post, endpoint.url, str(message.pk), message.payload, secrets)


def post(url: str, id: str, payload: dict[str, Any], secrets: list[str]) -> Attempt:
    """Send a payload to a URL. The address is resolved, checked and connected to anew for each attempt."""
    body = json.dumps(payload, separators=(",", ":"), sort_keys=True).encode()
    headers = HEADERS | signature_headers(id, int(time.time()), body, secrets)
    try:
        resolve = partial(resolve_allowed, scheme=httpx.URL(url).scheme)
        transport = deadline_transport(httpx, httpcore, TIMEOUT_SECONDS, resolve=resolve)
        with (
            httpx.Client(transport=transport, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            return _judge(response)  # the body is not read
    except AddressRefused:
        return Attempt(error_codes.WEBHOOK_ADDRESS_REFUSED)
    except httpx.TimeoutException:
        return Attempt(error_codes.WEBHOOK_TIMEOUT)
    except (httpx.TransportError, httpx.InvalidURL, ssl.SSLError, OSError):
        return Attempt(error_codes.WEBHOOK_UNREACHABLE)


def _judge(response: httpx.Response) -> Attempt:
    status = response.status_code
    if 200 <= status < 300:
        return Attempt(status=status)
    if status == HTTPStatus.GONE:
        return Attempt(error_codes.WEBHOOK_GONE, status, is_final=True)
    seconds = retry_after(response.headers) if status in WAITING_STATUSES else None
    return Attempt(error_codes.WEBHOOK_STATUS, status, retry_after=seconds or 0.0)


def record(message: Message, attempt: Attempt) -> None:
    """Count an attempt for its endpoint: pause it after a failure, disable it after 410 or three days of failures."""
    if attempt.code is None:
        prepared_statements.execute(SUCCEEDED, {"endpoint": message.target_id})
    elif attempt.code not in OURS:
        params = {
            "endpoint": message.target_id,
            "first": FIRST_PAUSE_SECONDS,
            "longest": LONGEST_PAUSE_SECONDS,
            "asked": attempt.retry_after,
            "gone": attempt.code == error_codes.WEBHOOK_GONE,
            "gone_code": str(error_codes.WEBHOOK_GONE),
            "failing": FAILING,
            "failing_code": str(error_codes.WEBHOOK_FAILING),
        }
        prepared_statements.execute(FAILED, params)
