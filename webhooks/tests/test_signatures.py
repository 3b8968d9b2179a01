"""What every scheme must refuse and accept: written once, inherited by each verifier's tests."""

from __future__ import annotations

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
from webhooks.tests.senders import (
    BEGINNING,
    FOREIGN,
    RETIRED,
    SECRET,
    SENDERS,
    Llama,
    Sender,
    Sent,
    Standard,
    call,
    told,
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
    "a string in a string": json.dumps(json.dumps(json.dumps(BEGINNING))).encode(),
    "a long number": b'{"event_type": ' + b"9" * 5000 + b"}",
    "not a number": b'{"event_type": NaN}',
    "a key twice": b'{"event_type": "parse.running", "event_type": "parse.success"}',
    "a key twice, deeper": b'{"event_type": "parse.running", "data": {"job_id": "a", "job_id": "b"}}',
    "UTF-16": json.dumps(BEGINNING).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(BEGINNING).encode(),
}


class SignatureTests:
    sender: Sender

    @pytest.mark.django_db
    def test_a_good_signature_is_accepted(self) -> None:
        assert told(call(self.sender.send(BEGINNING))) == ACCEPTED

    def test_the_refusal_says_nothing_of_what_was_wrong(self) -> None:
        wrong, stale = self.sender.send(BEGINNING, secret=FOREIGN), self.sender.send(BEGINNING, at=1)

        answers = [call(sent) for sent in (wrong, stale, Sent({}, wrong.body))]

        assert [json.loads(answer.content) for answer in answers] == [REFUSAL] * 3

    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage_for_a_signature_is_refused_and_no_fault(self, garbage: str) -> None:
        sent = self.sender.send(BEGINNING).with_header(self.sender.signature, garbage)

        assert told(call(sent)) == REFUSED

    def test_each_header_of_the_scheme_is_needed(self) -> None:
        sent = self.sender.send(BEGINNING)

        for name in sent.headers:
            left = {other: value for other, value in sent.headers.items() if other != name}
            assert told(call(Sent(left, sent.body))) == REFUSED

    def test_another_schemes_header_beside_a_good_signature_is_refused(self) -> None:
        sent = self.sender.send(BEGINNING)

        for other in SENDERS:
            if other.scheme != self.sender.scheme:
                assert told(call(Sent(sent.headers | other.sign(sent.body).headers, sent.body))) == REFUSED
                assert told(call(sent.with_header(other.signature, "x"))) == REFUSED

    @pytest.mark.django_db
    @pytest.mark.parametrize("late", [True, False])
    def test_a_callback_of_299_seconds_is_accepted(self, late: bool) -> None:
        now = time.time()
        # Whole seconds, rounded towards now: the test itself takes some time.
        at = math.ceil(now) - 299 if late else math.floor(now) + 299

        assert told(call(self.sender.send(BEGINNING, at=at))) == ACCEPTED

    @pytest.mark.parametrize("late", [True, False])
    def test_a_callback_of_301_seconds_is_refused(self, late: bool) -> None:
        now = time.time()
        at = math.floor(now) - 301 if late else math.ceil(now) + 302

        assert told(call(self.sender.send(BEGINNING, at=at))) == REFUSED

    @pytest.mark.django_db
    def test_while_two_secrets_are_configured_both_are_good_and_then_the_old_is_not(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET, RETIRED]
        both = [told(call(self.sender.send(BEGINNING, secret=secret))) for secret in (SECRET, RETIRED, FOREIGN)]

        settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET]
        one = [told(call(self.sender.send(BEGINNING, secret=secret))) for secret in (SECRET, RETIRED)]

        assert both == [ACCEPTED, ACCEPTED, REFUSED]
        assert one == [ACCEPTED, REFUSED]

    @pytest.mark.parametrize("body", NO_PAYLOADS.values(), ids=NO_PAYLOADS.keys())
    def test_what_is_no_payload_is_told_so_only_to_who_has_the_secret(self, body: bytes) -> None:
        assert told(call(self.sender.sign(body, secret=FOREIGN))) == REFUSED
        # Standard Webhooks signs text: what is no UTF-8 cannot have been signed.
        assert told(call(self.sender.sign(body))) in ((INVALID, REFUSED) if not is_utf8(body) else (INVALID,))

    @pytest.mark.django_db
    def test_a_payload_in_a_json_string_is_read(self) -> None:
        plain = self.sender.send(BEGINNING)

        assert told(call(self.sender.sign(json.dumps(plain.body.decode()).encode()))) == ACCEPTED

    @pytest.mark.parametrize("size", [16 * 1024 * 1024 + 1, 40 * 1024 * 1024])
    def test_a_body_of_more_than_16_mb_is_refused(self, size: int) -> None:
        assert told(call(self.sender.sign(b" " * size))) == (413, "BODY_TOO_LARGE")

    @pytest.mark.django_db
    def test_a_body_of_16_mb_is_read_and_verified(self) -> None:
        sent = self.sender.send(BEGINNING)
        filled = sent.body + b" " * (16 * 1024 * 1024 - len(sent.body))

        assert told(call(self.sender.sign(filled))) == ACCEPTED
        assert told(call(sent.with_body(filled))) == REFUSED

    def test_a_body_that_breaks_off_is_refused(self) -> None:
        sent = self.sender.send(BEGINNING)
        extra: Any = {"wsgi.input": Broken()}
        request = RequestFactory().generic("POST", "/", sent.body, headers=sent.headers, **extra)

        answer = LlamaParseView.as_view()(request)

        assert told(answer) == (400, "BODY_INTERRUPTED")

    def test_every_forgery_is_refused_without_a_look_at_the_database(self, caplog: pytest.LogCaptureFixture) -> None:
        # pytest-django refuses a query in a test that has asked for no database.
        caplog.set_level(logging.CRITICAL)
        sent = self.sender.send(BEGINNING | {"note": "Ünïcode & " + "n" * 1000})
        assert verified(sent)

        forged = list(forgeries(self.sender, sent))
        accepted = [forgery for forgery in forged if told(call(forgery)) != REFUSED]

        assert len(forged) >= 10_000
        assert sent not in forged
        assert accepted == []

    @pytest.mark.django_db
    def test_forgeries_leave_nothing_and_do_not_harm_the_good_one(self) -> None:
        sent = self.sender.send(BEGINNING)

        for forgery in [sent.with_body(body) for body in flipped(sent.body)]:
            call(forgery)

        assert Delivery.objects.count() == 0
        assert told(call(sent)) == ACCEPTED


class TestStandardWebhooks(SignatureTests):
    sender = Standard()

    def test_the_official_vector_passes(self) -> None:
        headers = {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }

        found = StandardWebhooks().verify(
            headers, b'{"test": 2432232314}', secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], now=1614265330.5
        )

        assert (found.message_id, found.payload) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", {"test": 2432232314})

    def test_what_is_accepted_here_is_what_the_library_accepts(self) -> None:
        sent = self.sender.send(BEGINNING)

        assert Webhook(SECRET).verify(sent.body, sent.headers) == BEGINNING

    @pytest.mark.django_db
    def test_one_good_signature_among_several_is_enough(self) -> None:
        sent = self.sender.send(BEGINNING)
        others = [
            self.sender.send(BEGINNING, secret=secret).headers["webhook-signature"] for secret in (RETIRED, FOREIGN)
        ]
        good = sent.headers["webhook-signature"]

        for order in ([*others, good], [good, *others], ["v1a,AAAA", "rubbish", good, ""]):
            assert told(call(sent.with_header("webhook-signature", " ".join(order)))) == ACCEPTED
        assert told(call(sent.with_header("webhook-signature", " ".join(others)))) == REFUSED

    @pytest.mark.parametrize(
        "message_id", ["msg.1", "", " ", "msg 1", "é", "m" * 257, "\x00", "1.1614265330"], ids=ascii
    )
    def test_an_id_that_could_be_read_in_two_ways_is_refused(self, message_id: str) -> None:
        sent = self.sender.sign(b"{}", message_id=message_id or "\n")

        assert told(call(sent)) == REFUSED

    @pytest.mark.parametrize("spelling", ["0{}", "+{}", "{}.0", " {}", "{}e0", "{}_0", "0x{}", "-{}", "\u0661{}", ""])
    def test_a_time_is_spelled_in_one_way(self, spelling: str) -> None:
        sent = self.sender.send(BEGINNING)
        seconds = sent.headers["webhook-timestamp"]

        assert told(call(sent.with_header("webhook-timestamp", spelling.format(seconds)))) == REFUSED

    def test_a_secret_that_is_no_base64_signs_nothing_here(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = ["a plain text of more than 24 characters", "whsec_" + "not base64! " * 3]

        assert told(call(self.sender.send(BEGINNING))) == REFUSED


class TestLlamaCloud(SignatureTests):
    sender = Llama()

    def test_the_vendors_example_passes(self) -> None:
        job = "a9a57884-921e-4ec2-b555-f4e5a97ec02a"
        body = (
            b'{"event_id":"149744dd-9002-4411-a6c7-9635da372caa","event_type":"parse.success",'
            b'"timestamp":1753985275.1154444,"data":{"id":"%(job)s","job_id":"%(job)s"}}' % {b"job": job.encode()}
        )
        headers = {"lc-signature": "sha256=3610c41bba7f01995803e24d097ed46c0a086c91ff88b9ac2a07d4da91fba953"}

        found = LlamaCloud().verify(headers, body, secrets=["test-secret"], now=1753985276)

        assert found.message_id == "149744dd-9002-4411-a6c7-9635da372caa"
        assert found.payload["data"] == {"id": job, "job_id": job}

    @pytest.mark.django_db
    def test_any_long_text_is_a_secret_here(self, settings: Any) -> None:
        settings.LLAMAPARSE_WEBHOOK_SECRETS = ["a plain text of more than 24 characters, ünïcode too"]
        sent = self.sender.send(BEGINNING, secret=settings.LLAMAPARSE_WEBHOOK_SECRETS[0])

        assert told(call(sent)) == ACCEPTED

    @pytest.mark.parametrize("changes", [
        {"event_id": None}, {"event_id": ""}, {"event_id": 7}, {"event_id": "a\x00b"}, {"event_id": "\ud800"},
        {"event_id": "e" * 201},
        {"timestamp": None}, {"timestamp": "1753985275"}, {"timestamp": True}, {"timestamp": []},
    ], ids=ascii)  # fmt: skip
    def test_a_body_without_id_or_time_of_its_own_cannot_be_told_from_a_replay(self, changes: dict[str, Any]) -> None:
        assert told(call(self.sender.send(BEGINNING | changes))) == INVALID

    @pytest.mark.parametrize("timestamp", ["1e999", "-1e999", "1" + "0" * 400, "0", "-1", "1e308"])
    def test_a_time_beyond_reason_is_refused_and_no_fault(self, timestamp: str) -> None:
        body = json.dumps(BEGINNING | {"event_id": "e", "timestamp": 0}).replace('p": 0', f'p": {timestamp}')

        assert told(call(self.sender.sign(body.encode()))) == REFUSED

    @pytest.mark.django_db
    def test_unsigned_headers_of_the_vendor_decide_nothing(self) -> None:
        sent = self.sender.send(BEGINNING, message_id="e1")

        call(sent.with_header("X-Webhook-Event-ID", "other").with_header("X-Webhook-Event-Type", "parse.success"))

        assert told(call(sent)) == ACCEPTED
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


def verified(sent: Sent) -> bool:
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


def forgeries(sender: Sender, sent: Sent) -> Iterator[Sent]:
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


def swapped(sender: Sender, sent: Sent) -> Iterator[Sent]:
    """Yield good signatures of the other scheme in the headers of this one, and of both at once."""
    for other in SENDERS:
        if other.scheme != sender.scheme:
            foreign = other.sign(sent.body)
            yield sent.with_header(sender.signature, foreign.headers[other.signature])
            yield foreign.with_header(other.signature, sent.headers[sender.signature])
            yield Sent(foreign.headers | sent.headers, sent.body)
    # The scheme's own way with the other's form of the key: the whole text here, the bytes behind it there.
    yield sender.sign(sent.body, secret="whsec_" + base64.b64encode(SECRET.encode()).decode())
    yield sender.sign(sent.body, secret="whsec_" + base64.b64encode(SECRET[6:].encode()).decode())
