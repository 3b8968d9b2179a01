"""Signature tests of all schemes: written once, inherited by each verifier's tests."""

import base64
import io
import json
import logging
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import RequestFactory
from standardwebhooks import Webhook

from accounts.errors import ApiError
from webhooks import verifiers
from webhooks.models import Delivery
from webhooks.tests.signers import (
    FOREIGN,
    RETIRED,
    RUNNING_EVENT,
    SECRET,
    SIGNERS,
    LlamaCloudSigner,
    SignedRequest,
    Signer,
    StandardSigner,
    post,
    status_and_code,
)
from webhooks.verifiers import LlamaCloud, StandardWebhooks
from webhooks.views import LlamaParseView

REFUSAL = {"code": "INVALID_SIGNATURE", "detail": "The signature is not valid."}
REFUSED, ACCEPTED, INVALID = (401, "INVALID_SIGNATURE"), (200, "EVENT_IGNORED"), (400, "INVALID_REQUEST")
GARBAGE = [
    "", " ", ",", ",,", "v1", "v1,", "v1,,", "v1,a,b", "v1,====", "v1,é", "v1, ", "v1,\x00", "v1a,AAAA", "sha256",
    "sha256=", "sha256=é", "sha256=\x00", "sha256=zz", "\ud800", "=", "é", "null", "v1," * 2000,
    "sha256=" + "0" * 64, "0" * 8000,
]  # fmt: skip


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


NO_PAYLOADS = {
    "no JSON": b"{",
    "nothing": b"",
    "no UTF-8, in JSON": b'{"event_type": "\xed\xa0\x80"}',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "nested": deep(200_000),
    "nested in a string": json.dumps(deep(200_000).decode()).encode(),
    "a string in a string": json.dumps(json.dumps(json.dumps(RUNNING_EVENT))).encode(),
    "a long number": b'{"event_type": ' + b"9" * 5000 + b"}",
    "not a number": b'{"event_type": NaN}',
    "a key twice": b'{"event_type": "parse.running", "event_type": "parse.success"}',
    "a key twice, deeper": b'{"event_type": "parse.running", "data": {"job_id": "a", "job_id": "b"}}',
    "UTF-16": json.dumps(RUNNING_EVENT).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(RUNNING_EVENT).encode(),
}


class SignatureTests:
    sender: Signer

    @pytest.mark.django_db
    def test_a_valid_signature_is_accepted(self) -> None:
        assert status_and_code(post(self.sender.send(RUNNING_EVENT))) == ACCEPTED

    def test_the_error_does_not_reveal_the_reason(self) -> None:
        wrong, stale = self.sender.send(RUNNING_EVENT, secret=FOREIGN), self.sender.send(RUNNING_EVENT, at=1)

        answers = [post(sent) for sent in (wrong, stale, SignedRequest({}, wrong.body))]

        assert [json.loads(answer.content) for answer in answers] == [REFUSAL] * 3

    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage_for_a_signature_is_refused_and_no_fault(self, garbage: str) -> None:
        sent = self.sender.send(RUNNING_EVENT).with_header(self.sender.signature, garbage)

        assert status_and_code(post(sent)) == REFUSED

    def test_each_header_of_the_scheme_is_needed(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)

        for name in sent.headers:
            left = {other: value for other, value in sent.headers.items() if other != name}
            assert status_and_code(post(SignedRequest(left, sent.body))) == REFUSED

    def test_headers_of_two_signature_schemes_are_refused(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)

        for other in SIGNERS:
            if other.scheme != self.sender.scheme:
                assert (
                    status_and_code(post(SignedRequest(sent.headers | other.sign(sent.body).headers, sent.body)))
                    == REFUSED
                )
                assert status_and_code(post(sent.with_header(other.signature, "x"))) == REFUSED

    @pytest.mark.django_db
    @pytest.mark.parametrize("late", [True, False])
    def test_a_callback_of_299_seconds_is_accepted(self, late: bool) -> None:
        now = time.time()
        # Whole seconds, rounded towards now: the test itself takes some time.
        at = math.ceil(now) - 299 if late else math.floor(now) + 299

        assert status_and_code(post(self.sender.send(RUNNING_EVENT, at=at))) == ACCEPTED

    @pytest.mark.parametrize("late", [True, False])
    def test_a_callback_of_301_seconds_is_refused(self, late: bool) -> None:
        now = time.time()
        at = math.floor(now) - 301 if late else math.ceil(now) + 302

        assert status_and_code(post(self.sender.send(RUNNING_EVENT, at=at))) == REFUSED

    @pytest.mark.django_db
    def test_an_older_secret_is_accepted_while_it_is_configured(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET, RETIRED]
        both = [
            status_and_code(post(self.sender.send(RUNNING_EVENT, secret=secret)))
            for secret in (SECRET, RETIRED, FOREIGN)
        ]

        settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET]
        one = [status_and_code(post(self.sender.send(RUNNING_EVENT, secret=secret))) for secret in (SECRET, RETIRED)]

        assert both == [ACCEPTED, ACCEPTED, REFUSED]
        assert one == [ACCEPTED, REFUSED]

    @pytest.mark.parametrize("body", NO_PAYLOADS.values(), ids=NO_PAYLOADS.keys())
    def test_payload_errors_are_reported_only_with_a_valid_signature(self, body: bytes) -> None:
        assert status_and_code(post(self.sender.sign(body, secret=FOREIGN))) == REFUSED
        # Standard Webhooks signs text: what is no UTF-8 cannot have been signed.
        assert status_and_code(post(self.sender.sign(body))) in (
            (INVALID, REFUSED) if not is_utf8(body) else (INVALID,)
        )

    @pytest.mark.django_db
    def test_a_payload_in_a_json_string_is_read(self) -> None:
        plain = self.sender.send(RUNNING_EVENT)

        assert status_and_code(post(self.sender.sign(json.dumps(plain.body.decode()).encode()))) == ACCEPTED

    @pytest.mark.parametrize("size", [16 * 1024 * 1024 + 1, 40 * 1024 * 1024])
    def test_a_body_of_more_than_16_mb_is_refused(self, size: int) -> None:
        assert status_and_code(post(self.sender.sign(b" " * size))) == (413, "BODY_TOO_LARGE")

    @pytest.mark.django_db
    def test_a_body_of_16_mb_is_read_and_verified(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)
        filled = sent.body + b" " * (16 * 1024 * 1024 - len(sent.body))

        assert status_and_code(post(self.sender.sign(filled))) == ACCEPTED
        assert status_and_code(post(sent.with_body(filled))) == REFUSED

    def test_an_interrupted_body_is_refused(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)
        extra: Any = {"wsgi.input": Broken()}
        request = RequestFactory().generic("POST", "/", sent.body, headers=sent.headers, **extra)

        answer = LlamaParseView.as_view()(request)

        assert status_and_code(answer) == (400, "BODY_INTERRUPTED")

    def test_forgeries_are_refused_without_a_query(self, caplog: pytest.LogCaptureFixture) -> None:
        # pytest-django refuses a query in a test that has asked for no database.
        caplog.set_level(logging.CRITICAL)
        sent = self.sender.send(RUNNING_EVENT | {"note": "Ünïcode & " + "n" * 1000})
        assert verified(sent)

        forged = list(forgeries(self.sender, sent))
        accepted = [forgery for forgery in forged if status_and_code(post(forgery)) != REFUSED]

        assert len(forged) >= 10_000
        assert sent not in forged
        assert accepted == []

    @pytest.mark.django_db
    def test_forged_callbacks_leave_no_rows_and_the_genuine_one_succeeds(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)

        for forgery in [sent.with_body(body) for body in flipped(sent.body)]:
            post(forgery)

        assert Delivery.objects.count() == 0
        assert status_and_code(post(sent)) == ACCEPTED


class TestStandardWebhooks(SignatureTests):
    sender = StandardSigner()

    def test_the_official_vector_passes(self) -> None:
        headers = {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }

        verified_callback = StandardWebhooks().verify(
            headers, b'{"test": 2432232314}', secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], now=1614265330.5
        )

        assert (verified_callback.message_id, verified_callback.payload) == (
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            {"test": 2432232314},
        )

    def test_accepted_signatures_equal_the_librarys(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)

        assert Webhook(SECRET).verify(sent.body, sent.headers) == RUNNING_EVENT

    @pytest.mark.django_db
    def test_one_valid_signature_among_several_is_accepted(self) -> None:
        sent = self.sender.send(RUNNING_EVENT)
        others = [
            self.sender.send(RUNNING_EVENT, secret=secret).headers["webhook-signature"] for secret in (RETIRED, FOREIGN)
        ]
        good = sent.headers["webhook-signature"]

        for order in ([*others, good], [good, *others], ["v1a,AAAA", "rubbish", good, ""]):
            assert status_and_code(post(sent.with_header("webhook-signature", " ".join(order)))) == ACCEPTED
        assert status_and_code(post(sent.with_header("webhook-signature", " ".join(others)))) == REFUSED

    @pytest.mark.parametrize(
        "message_id", ["msg.1", "", " ", "msg 1", "é", "m" * 257, "\x00", "1.1614265330"], ids=ascii
    )
    def test_an_ambiguous_message_id_is_refused(self, message_id: str) -> None:
        sent = self.sender.sign(b"{}", message_id=message_id or "\n")

        assert status_and_code(post(sent)) == REFUSED

    @pytest.mark.parametrize("spelling", ["0{}", "+{}", "{}.0", " {}", "{}e0", "{}_0", "0x{}", "-{}", "\u0661{}", ""])
    def test_a_time_is_spelled_in_one_way(self, spelling: str) -> None:
        sent = self.sender.send(RUNNING_EVENT)
        seconds = sent.headers["webhook-timestamp"]

        assert status_and_code(post(sent.with_header("webhook-timestamp", spelling.format(seconds)))) == REFUSED

    def test_a_secret_that_is_no_base64_signs_nothing_here(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = ["a plain text of more than 24 characters", "whsec_" + "not base64! " * 3]

        assert status_and_code(post(self.sender.send(RUNNING_EVENT))) == REFUSED


class TestLlamaCloud(SignatureTests):
    sender = LlamaCloudSigner()

    def test_the_vendors_example_passes(self) -> None:
        job = "a9a57884-921e-4ec2-b555-f4e5a97ec02a"
        body = (
            b'{"event_id":"149744dd-9002-4411-a6c7-9635da372caa","event_type":"parse.success",'
            b'"timestamp":1753985275.1154444,"data":{"id":"%(job)s","job_id":"%(job)s"}}' % {b"job": job.encode()}
        )
        headers = {"lc-signature": "sha256=3610c41bba7f01995803e24d097ed46c0a086c91ff88b9ac2a07d4da91fba953"}

        verified_callback = LlamaCloud().verify(headers, body, secrets=["test-secret"], now=1753985276)

        assert verified_callback.message_id == "149744dd-9002-4411-a6c7-9635da372caa"
        assert verified_callback.payload["data"] == {"id": job, "job_id": job}

    @pytest.mark.django_db
    def test_any_long_text_is_a_secret_here(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = ["a plain text of more than 24 characters, ünïcode too"]
        sent = self.sender.send(RUNNING_EVENT, secret=settings.LLAMAPARSE_WEBHOOK_SECRETS[0])

        assert status_and_code(post(sent)) == ACCEPTED

    @pytest.mark.parametrize("changes", [
        {"event_id": None}, {"event_id": ""}, {"event_id": 7}, {"event_id": "a\x00b"}, {"event_id": "\ud800"},
        {"event_id": "e" * 201},
        {"timestamp": None}, {"timestamp": "1753985275"}, {"timestamp": True}, {"timestamp": []},
    ], ids=ascii)  # fmt: skip
    def test_a_body_without_id_or_time_is_refused(self, changes: dict[str, Any]) -> None:
        assert status_and_code(post(self.sender.send(RUNNING_EVENT | changes))) == INVALID

    @pytest.mark.parametrize("timestamp", ["1e999", "-1e999", "1" + "0" * 400, "0", "-1", "1e308"])
    def test_a_time_beyond_reason_is_refused_and_no_fault(self, timestamp: str) -> None:
        body = json.dumps(RUNNING_EVENT | {"event_id": "e", "timestamp": 0}).replace('p": 0', f'p": {timestamp}')

        assert status_and_code(post(self.sender.sign(body.encode()))) == REFUSED

    @pytest.mark.django_db
    def test_unsigned_headers_of_the_vendor_decide_nothing(self) -> None:
        sent = self.sender.send(RUNNING_EVENT, message_id="e1")

        post(sent.with_header("X-Webhook-Event-ID", "other").with_header("X-Webhook-Event-Type", "parse.success"))

        assert status_and_code(post(sent)) == ACCEPTED
        assert Delivery.objects.count() == 1


class Broken(io.RawIOBase):
    def read(self, size: int = -1, /) -> bytes:
        raise ConnectionResetError


def is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def verified(sent: SignedRequest) -> bool:
    try:
        verifiers.select_verifier(sent.headers).verify(sent.headers, sent.body, secrets=[SECRET], now=time.time())
    except ApiError:
        return False
    return True


def flipped(content: bytes) -> Iterator[bytes]:
    """Yield ``content`` with each of its bits flipped in turn."""
    for place in range(len(content)):
        for bit in range(8):
            yield content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def forgeries(sender: Signer, sent: SignedRequest) -> Iterator[SignedRequest]:
    signature = sent.headers[sender.signature]
    for name, value in sent.headers.items():
        yield from (sent.with_header(name, other.decode("latin-1")) for other in flipped(value.encode()))
        yield from (sent.with_header(name, value[:length]) for length in range(len(value)))
    yield from (sent.with_body(body) for body in flipped(sent.body))
    yield from (sent.with_body(sent.body[:length]) for length in range(len(sent.body)))
    yield from (sent.with_body(body) for body in reserialized(sent.body))
    yield from (sent.with_header(sender.signature, other) for other in sender.vary(signature))
    yield from (sender.sign(sent.body, secret=secret) for secret in wrong_secrets())
    yield from swapped(sender, sent)


def reserialized(body: bytes) -> Iterator[bytes]:
    """Yield the same JSON, written in other ways."""
    payload = json.loads(body)
    yield json.dumps(payload, separators=(",", ":")).encode()
    yield json.dumps(payload, indent=1).encode()
    yield json.dumps(payload, ensure_ascii=False).encode()
    yield json.dumps(dict(reversed(payload.items()))).encode()
    yield from (body + extra for extra in (b" ", b"\n", b"\r\n", b"\x00", b"{}"))
    yield from (extra + body for extra in (b" ", b"\n", b"\xef\xbb\xbf", b"\x00"))
    yield from (body.upper(), body.swapcase(), body + body, json.dumps(body.decode()).encode())


def wrong_secrets() -> Iterator[str]:
    yield from (RETIRED, FOREIGN, "whsec_", "whsec_" + "A" * 43 + "=", "whsec_" + base64.b64encode(bytes(24)).decode())
    yield from ("whsec_" + base64.b64encode(key).decode() for key in flipped(base64.b64decode(SECRET[6:])))


def swapped(sender: Signer, sent: SignedRequest) -> Iterator[SignedRequest]:
    """Yield good signatures of the other scheme in the headers of this one, and of both at once."""
    for other in SIGNERS:
        if other.scheme != sender.scheme:
            foreign = other.sign(sent.body)
            yield sent.with_header(sender.signature, foreign.headers[other.signature])
            yield foreign.with_header(other.signature, sent.headers[sender.signature])
            yield SignedRequest(foreign.headers | sent.headers, sent.body)
    # The scheme's own way with the other's form of the key: the whole text here, the bytes behind it there.
    yield sender.sign(sent.body, secret="whsec_" + base64.b64encode(SECRET.encode()).decode())
    yield sender.sign(sent.body, secret="whsec_" + base64.b64encode(SECRET[6:].encode()).decode())
