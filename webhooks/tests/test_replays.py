"""Replays: a callback has its effect once, however often, concurrently and after a restart."""

import base64
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.db.models.functions import Now

from testing.cluster import database_params, database_url
from testing.concurrency import run_concurrently
from webhooks import callbacks
from webhooks.models import Delivery
from webhooks.tests.conftest import VENDOR_JOB, JobUpdates, Parse, submitted_parse
from webhooks.tests.signers import (
    RETIRED,
    RUNNING_EVENT,
    SECRET,
    SIGNERS,
    LlamaCloudSigner,
    SignedRequest,
    Signer,
    StandardSigner,
    event_payload,
    post,
    status_and_code,
)
from webhooks.tests.test_callbacks import contract

THREADS, EACH = 50, 20
senders = pytest.mark.parametrize("sender", SIGNERS, ids=lambda sender: sender.scheme)
# A process that has just been started, with nothing but the database and the secret.
RESTARTED = """
import base64, json, sys
import django
django.setup()
from webhooks.tests.signers import SignedRequest, post, status_and_code
request = json.load(sys.stdin)
print(json.dumps(status_and_code(post(SignedRequest(request["headers"], base64.b64decode(request["body"]))))))
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["JOB_WOKEN", "PARSE_STORED"])
@senders
def test_1000_replays_of_which_50_at_once_have_one_effect(
    sender: Signer, code: str, parse: Parse, effects: JobUpdates
) -> None:
    def sent_for(parse: Parse, vendor_job_id: str) -> SignedRequest:
        return sender.send(event_payload(vendor_job_id) if code == "JOB_WOKEN" else contract(parse))

    post(sent_for(submitted_parse("pjb-alone"), "pjb-alone"))
    alone = effects.touches
    sent = sent_for(parse, VENDOR_JOB)

    def replay() -> list[tuple[int, str]]:
        return [status_and_code(post(sent)) for _ in range(EACH)]

    answers = Counter(answer for mine in run_concurrently(*[replay] * THREADS) for answer in mine)

    assert answers == {(200, code): THREADS * EACH}
    assert effects.touches == 2 * alone > 0
    assert len(parse.codes) == 1
    assert Delivery.objects.count() == 2


@pytest.mark.django_db
@senders
def test_the_same_id_with_another_body_is_refused_without_effect(sender: Signer, parse: Parse) -> None:
    assert status_and_code(post(sender.send(RUNNING_EVENT, message_id="same"))) == (200, "EVENT_IGNORED")

    again = post(sender.send(event_payload(VENDOR_JOB), message_id="same"))

    assert status_and_code(again) == (409, "CALLBACK_CONTRADICTS")
    assert parse.waits


@pytest.mark.django_db
def test_the_same_id_in_two_schemes_is_two_callbacks(parse: Parse) -> None:
    codes = [status_and_code(post(sender.send(event_payload(VENDOR_JOB), message_id="same"))) for sender in SIGNERS]

    assert codes == [(200, "JOB_WOKEN")] * 2
    assert Delivery.objects.count() == 2


@pytest.mark.django_db
def test_a_repetition_with_a_new_signature_is_still_a_repetition(parse: Parse) -> None:
    first, again = [
        StandardSigner().send(event_payload(VENDOR_JOB), message_id="m1", at=time.time() - late) for late in (60, 0)
    ]

    assert status_and_code(post(first)) == status_and_code(post(again)) == (200, "JOB_WOKEN")
    assert first.headers != again.headers
    assert Delivery.objects.count() == 1
    assert parse.codes == ["DUE"]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@senders
def test_a_restarted_process_recognizes_repeated_deliveries(sender: Signer, parse: Parse, effects: JobUpdates) -> None:
    sent = sender.send(event_payload(VENDOR_JOB))
    first, before = status_and_code(post(sent)), effects.touches

    assert post_from_another_process(sent) == first == (200, "JOB_WOKEN")
    assert effects.touches == before


def post_from_another_process(sent: SignedRequest) -> tuple[int, str]:
    environment = os.environ | {
        "DATABASE_URL": database_url(database_params()),
        "DJANGO_SETTINGS_MODULE": "accessa.settings",
        "LLAMAPARSE_WEBHOOK_SECRETS": SECRET,
    }
    request = json.dumps({"headers": sent.headers, "body": base64.b64encode(sent.body).decode()})
    done = subprocess.run(
        [sys.executable, "-c", RESTARTED],
        input=request, text=True, capture_output=True, env=environment, cwd=configured.BASE_DIR, timeout=60, check=True,
    )  # fmt: skip
    status, code = json.loads(done.stdout)
    return status, code


@pytest.mark.django_db
def test_deliveries_expire_after_a_day(parse: Parse) -> None:
    post(LlamaCloudSigner().send(event_payload(VENDOR_JOB)))
    delivery = Delivery.objects.get()

    callbacks.delete_expired_deliveries()
    remembered = Delivery.objects.count()
    Delivery.objects.update(expires_at=Now() - timedelta(seconds=1))
    callbacks.delete_expired_deliveries()

    assert timedelta(hours=23, minutes=59) < delivery.expires_at - delivery.received_at < timedelta(hours=24, minutes=1)
    assert remembered == 1
    assert Delivery.objects.count() == 0


def test_expired_deliveries_are_a_periodic_task() -> None:
    assert "webhooks.callbacks.delete_expired_deliveries" in configured.JOBS_PERIODIC_TASKS


@pytest.mark.django_db(transaction=True)
@senders
def test_secrets_rotate_under_traffic_without_a_lost_callback(sender: Signer, settings: Any) -> None:
    def traffic(secret: str) -> Callable[[], Counter[int]]:
        return lambda: Counter(post(sender.send(RUNNING_EVENT, secret=secret)).status_code for _ in range(EACH))

    seen = []
    for secrets in ([RETIRED], [SECRET, RETIRED], [SECRET]):
        settings.LLAMAPARSE_WEBHOOK_SECRETS = secrets
        # Those who sign with the old and with the new call at the same time.
        by = run_concurrently(*[traffic(RETIRED), traffic(SECRET)] * 4)
        seen.append((sum(by[0::2], Counter()), sum(by[1::2], Counter())))

    total = 4 * EACH
    assert seen == [({200: total}, {401: total}), ({200: total}, {200: total}), ({401: total}, {200: total})]
