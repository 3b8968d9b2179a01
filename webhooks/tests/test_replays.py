"""A callback has its effect once, however often, however many at a time, and whoever has been restarted meanwhile."""

from __future__ import annotations

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

from testing.cluster import database_url, used_database
from testing.concurrency import at_once
from webhooks import services
from webhooks.models import Delivery
from webhooks.tests.conftest import VENDOR_JOB, Effects, Parse, asked
from webhooks.tests.senders import (
    BEGINNING,
    RETIRED,
    SECRET,
    SENDERS,
    Llama,
    Sender,
    Sent,
    Standard,
    call,
    ending,
    told,
)
from webhooks.tests.test_callbacks import contract

THREADS, EACH = 50, 20
senders = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.scheme)
# A process that has just been started, with nothing but the database and the secret.
RESTARTED = """
import base64, json, sys
import django
django.setup()
from webhooks.tests.senders import Sent, call, told
given = json.load(sys.stdin)
print(json.dumps(told(call(Sent(given["headers"], base64.b64decode(given["body"]))))))
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["JOB_WOKEN", "PARSE_STORED"])
@senders
def test_1000_replays_of_which_50_at_once_have_one_effect(
    sender: Sender, code: str, parse: Parse, effects: Effects
) -> None:
    def sent_for(parse: Parse, vendor_job_id: str) -> Sent:
        return sender.send(ending(vendor_job_id) if code == "JOB_WOKEN" else contract(parse))

    call(sent_for(asked("pjb-alone"), "pjb-alone"))
    alone = effects.touches
    sent = sent_for(parse, VENDOR_JOB)

    def replay() -> list[tuple[int, str]]:
        return [told(call(sent)) for _ in range(EACH)]

    answers = Counter(answer for mine in at_once(*[replay] * THREADS) for answer in mine)

    assert answers == {(200, code): THREADS * EACH}
    assert effects.touches == 2 * alone > 0
    assert len(parse.codes) == 1
    assert Delivery.objects.count() == 2


@pytest.mark.django_db
@senders
def test_the_same_id_with_another_body_is_refused_without_effect(sender: Sender, parse: Parse) -> None:
    assert told(call(sender.send(BEGINNING, message_id="same"))) == (200, "EVENT_IGNORED")

    again = call(sender.send(ending(VENDOR_JOB), message_id="same"))

    assert told(again) == (409, "CALLBACK_CONTRADICTS")
    assert parse.waits


@pytest.mark.django_db
def test_the_same_id_in_two_schemes_is_two_callbacks(parse: Parse) -> None:
    codes = [told(call(sender.send(ending(VENDOR_JOB), message_id="same"))) for sender in SENDERS]

    assert codes == [(200, "JOB_WOKEN")] * 2
    assert Delivery.objects.count() == 2


@pytest.mark.django_db
def test_a_repetition_that_is_signed_anew_is_still_a_repetition(parse: Parse) -> None:
    first, again = [Standard().send(ending(VENDOR_JOB), message_id="m1", at=time.time() - late) for late in (60, 0)]

    assert told(call(first)) == told(call(again)) == (200, "JOB_WOKEN")
    assert first.headers != again.headers
    assert Delivery.objects.count() == 1
    assert parse.codes == ["DUE"]


@pytest.mark.django_db(transaction=True)
@senders
def test_a_restarted_process_knows_what_was_delivered(sender: Sender, parse: Parse, effects: Effects) -> None:
    sent = sender.send(ending(VENDOR_JOB))
    first, before = told(call(sent)), effects.touches

    assert told_by_another_process(sent) == first == (200, "JOB_WOKEN")
    assert effects.touches == before


def told_by_another_process(sent: Sent) -> tuple[int, str]:
    environment = os.environ | {
        "DATABASE_URL": database_url(used_database()),
        "DJANGO_SETTINGS_MODULE": "accessa.settings",
        "LLAMAPARSE_WEBHOOK_SECRETS": SECRET,
    }
    given = json.dumps({"headers": sent.headers, "body": base64.b64encode(sent.body).decode()})
    done = subprocess.run(
        [sys.executable, "-c", RESTARTED],
        input=given, text=True, capture_output=True, env=environment, cwd=configured.BASE_DIR, timeout=60, check=True,
    )  # fmt: skip
    status, code = json.loads(done.stdout)
    return status, code


@pytest.mark.django_db
def test_deliveries_are_forgotten_after_a_day_and_not_before(parse: Parse) -> None:
    call(Llama().send(ending(VENDOR_JOB)))
    kept = Delivery.objects.get()

    services.delete_expired_deliveries()
    remembered = Delivery.objects.count()
    Delivery.objects.update(expires_at=Now() - timedelta(seconds=1))
    services.delete_expired_deliveries()

    assert timedelta(hours=23, minutes=59) < kept.expires_at - kept.received_at < timedelta(hours=24, minutes=1)
    assert remembered == 1
    assert Delivery.objects.count() == 0


def test_the_keeper_forgets_deliveries() -> None:
    assert "webhooks.services.delete_expired_deliveries" in configured.JOBS_PERIODIC_TASKS


@pytest.mark.django_db(transaction=True)
@senders
def test_secrets_change_under_traffic_and_no_good_callback_is_lost(sender: Sender, settings: Any) -> None:
    def traffic(secret: str) -> Callable[[], Counter[int]]:
        return lambda: Counter(call(sender.send(BEGINNING, secret=secret)).status_code for _ in range(EACH))

    seen = []
    for secrets in ([RETIRED], [SECRET, RETIRED], [SECRET]):
        settings.LLAMAPARSE_WEBHOOK_SECRETS = secrets
        # Those who sign with the old and with the new call at the same time.
        by = at_once(*[traffic(RETIRED), traffic(SECRET)] * 4)
        seen.append((sum(by[0::2], Counter()), sum(by[1::2], Counter())))

    total = 4 * EACH
    assert seen == [({200: total}, {401: total}), ({200: total}, {200: total}), ({401: total}, {200: total})]
