"""Verification of webhooks, against the reference library's signatures."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from accessa_client import WebhookError, verify_webhook
from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"type":"document.failed","data":{"code":"NOT_A_PDF"}}'
NOW = 1_780_000_000


def headers(body: bytes = BODY, *, at: int = NOW, secret: str = SECRET) -> dict[str, str]:
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), body.decode())
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signature}


def test_a_signed_webhook_is_an_event() -> None:
    assert verify_webhook(BODY, headers(), SECRET, now=NOW)["data"] == {"code": "NOT_A_PDF"}


def test_one_of_two_signatures_is_enough() -> None:
    signed = headers()
    signed["Webhook-Signature"] = f"v1,AAAA v2,x {signed['Webhook-Signature']}"

    assert verify_webhook(BODY, signed, SECRET, now=NOW)


@pytest.mark.parametrize(
    ("body", "changes", "secret", "now"),
    [
        (BODY + b" ", {}, SECRET, NOW),
        (BODY, {"Webhook-Id": "msg_2"}, SECRET, NOW),
        (BODY, {"Webhook-Timestamp": str(NOW + 1)}, SECRET, NOW),
        (BODY, {"Webhook-Timestamp": "now"}, SECRET, NOW),
        (BODY, {"Webhook-Signature": ""}, SECRET, NOW),
        (BODY, {"Webhook-Signature": "v1,é"}, SECRET, NOW),
        (BODY, {}, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", NOW),
        (BODY, {}, "no base64!", NOW),
        (BODY, {}, SECRET, NOW + 301),
        (BODY, {}, SECRET, NOW - 301),
    ],
)
def test_anything_else_is_forged(body: bytes, changes: dict[str, str], secret: str, now: float) -> None:
    with pytest.raises(WebhookError):
        verify_webhook(body, headers() | changes, secret, now=now)


@pytest.mark.parametrize("body", [b"no JSON", b"[]"])
def test_a_signed_body_that_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(WebhookError):
        verify_webhook(body, headers(body), SECRET, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_QUJD"])
def test_a_secret_that_anybody_may_guess_verifies_nothing(secret: str) -> None:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"msg_1.{NOW}.".encode() + BODY, hashlib.sha256)
    signed = headers() | {"Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}"}

    with pytest.raises(WebhookError):
        verify_webhook(BODY, signed, secret, now=NOW)


def test_without_headers_it_is_forged() -> None:
    with pytest.raises(WebhookError):
        verify_webhook(BODY, {}, SECRET)
