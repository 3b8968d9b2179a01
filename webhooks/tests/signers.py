"""Signers of callbacks, one for each scheme, and the view that they call."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Protocol

from django.http import HttpResponse
from django.test import RequestFactory

from webhooks.views import LlamaParseView

SECRET = "whsec_" + base64.b64encode(b"a secret that only tests know!!!").decode()
RETIRED = "whsec_" + base64.b64encode(b"a secret that was known in 2025.").decode()
FOREIGN = "whsec_" + base64.b64encode(b"a secret of somebody else's own.").decode()
_requests = RequestFactory()
_view = LlamaParseView.as_view()


@dataclass(frozen=True)
class SignedRequest:
    headers: dict[str, str]
    body: bytes

    def with_header(self, name: str, value: str) -> SignedRequest:
        return replace(self, headers=self.headers | {name: value})

    def with_body(self, body: bytes) -> SignedRequest:
        return replace(self, body=body)


class Signer(Protocol):
    scheme: str
    signature: str  # the header that carries it

    def send(
        self, payload: Any, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        """Sign a payload as this scheme does, with an id of its own and now unless they are given."""

    def sign(
        self, body: bytes, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        """Sign bytes, whatever they are."""

    def vary(self, signature: str) -> list[str]:
        """Return other spellings of a good signature, none of which this scheme knows."""


class StandardSigner:
    scheme = "standard-webhooks"
    signature = "webhook-signature"

    def send(
        self, payload: Any, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        return self.sign(json.dumps(payload).encode(), message_id=message_id, at=at, secret=secret)

    def sign(
        self, body: bytes, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        message_id = message_id or f"msg_{uuid.uuid4().hex}"
        seconds = str(int(time.time() if at is None else at))
        key = base64.b64decode(secret.removeprefix("whsec_"))
        mac = hmac.new(key, f"{message_id}.{seconds}.".encode() + body, hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(mac).decode()}"
        return SignedRequest(
            {"webhook-id": message_id, "webhook-timestamp": seconds, "webhook-signature": signature}, body
        )

    def vary(self, signature: str) -> list[str]:
        mac = signature.removeprefix("v1,")
        unpadded, hexed = mac.rstrip("="), base64.b64decode(mac).hex()
        versions = [f"{version},{mac}" for version in ("", "v0", "v2", "v1a", "V1", "v1 ")]
        texts = [unpadded, mac + "=", mac + ",", "," + mac, mac.swapcase(), mac[::-1], hexed, mac + mac, f"\t{mac}"]
        return [mac, signature.replace(",", ";"), signature.replace(",", ", "), *versions, *[f"v1,{t}" for t in texts]]


class LlamaCloudSigner:
    scheme = "llamacloud"
    signature = "lc-signature"

    def send(
        self, payload: Any, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        own = {"event_id": message_id or str(uuid.uuid4()), "timestamp": time.time() if at is None else at}
        return self.sign(json.dumps(own | payload).encode(), secret=secret)

    def sign(
        self, body: bytes, *, message_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> SignedRequest:
        return SignedRequest(
            {"lc-signature": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"}, body
        )

    def vary(self, signature: str) -> list[str]:
        mac = signature.removeprefix("sha256=")
        based = base64.b64encode(bytes.fromhex(mac)).decode()
        names = [f"{name}={mac}" for name in ("", "sha1", "sha512", "SHA256", "sha-256", "md5")]
        texts = [mac.upper(), mac + "0", "0" + mac, "0x" + mac, mac[::-1], based, mac + mac, mac + "," + mac]
        return [mac, signature.replace("=", ":"), f"{signature},{signature}", *names, *[f"sha256={t}" for t in texts]]


SIGNERS: tuple[Signer, ...] = (StandardSigner(), LlamaCloudSigner())


def post(sent: SignedRequest) -> HttpResponse:
    """Post to the view itself. What it does not catch is raised."""
    request = _requests.generic(
        "POST", "/webhooks/llamaparse", sent.body, content_type="application/json", headers=sent.headers
    )
    return _view(request)  # type: ignore[return-value]


def status_and_code(answer: Any) -> tuple[int, str]:
    return answer.status_code, str(json.loads(answer.content)["code"])


def event_payload(vendor_job_id: str = "pjb-none", event_type: str = "parse.success") -> dict[str, Any]:
    return {"event_type": event_type, "data": {"id": vendor_job_id, "job_id": vendor_job_id}}


# It needs no job, and is answered 200.
RUNNING_EVENT = event_payload(event_type="parse.running")
