"""The outbox's queue: claims, retries, crashes between its steps, and real workers that are killed."""

import threading
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from outbox import periodic, queue
from outbox.attempts import Attempt
from outbox.error_codes import WEBHOOK_STATUS
from outbox.models import Message, WebhookEndpoint
from outbox.tests.conftest import TENANT, Publish
from outbox.webhooks import delivery, endpoints
from outbox.webhooks.endpoints import NewSecret
from testing.cluster import create_jobs, running_cluster, wait_until
from testing.fakes.callback_receiver import CallbackReceiver

pytestmark = pytest.mark.django_db(transaction=True)
DAYS = 86_400


def turn(seconds: float = 60) -> int:
    return queue.drain(time.monotonic() + seconds)


def make_due() -> None:
    Message.objects.update(due_at=Now())
    WebhookEndpoint.objects.update(paused_until=None)


def test_a_message_is_delivered_once(publish: Publish, receiver: CallbackReceiver) -> None:
    message = publish()
    assert not queue.is_idle()

    assert (turn(), turn()) == (1, 0)

    message.refresh_from_db()
    assert (message.state, message.attempts, message.last_error) == ("delivered", 1, None)
    assert [letter.headers["webhook-id"] for letter in receiver.letters] == [str(message.pk)]
    assert [(entry["status"], entry["code"]) for entry in message.log] == [(200, None)]
    assert queue.is_idle()


def test_a_failed_attempt_waits_and_pauses_its_endpoint(publish: Publish, receiver: CallbackReceiver) -> None:
    receiver.statuses = [500]
    first, second = publish(), publish()

    assert turn() == 1  # the other message waits for the endpoint's pause

    assert len(receiver.letters) == 1
    assert Message.objects.filter(pk__in=[first.pk, second.pk], state="queued").count() == 2
    make_due()
    assert turn() == 2
    assert Message.objects.filter(state="delivered").count() == 2
    assert WebhookEndpoint.objects.get().failing_since is None


def test_attempts_follow_the_advised_schedule_for_three_days(
    publish: Publish, receiver: CallbackReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "post", lambda *args: Attempt(WEBHOOK_STATUS, 503))
    message, waits = publish(), []

    while message.state == "queued":
        make_due()
        assert turn() == 1
        message.refresh_from_db()
        waits.append((message.due_at - timezone.now()).total_seconds())

    assert (message.state, message.attempts, message.last_error) == ("failed", 10, "WEBHOOK_STATUS")
    for wait, advised in zip(waits, queue.WAIT_SECONDS, strict=False):
        assert advised - 5 <= wait <= advised * 1.2
    assert 3 * DAYS < sum(queue.WAIT_SECONDS) < 4 * DAYS
    assert len(message.log) == 10


def test_a_worker_that_dies_before_it_sends_costs_an_attempt_and_no_message(
    publish: Publish, receiver: CallbackReceiver
) -> None:
    message = publish()

    (claimed,) = queue.claim_due()
    assert (turn(), receiver.letters) == (0, [])  # another worker leaves it alone
    make_due()
    turn()

    message.refresh_from_db()
    assert (claimed.pk, message.state, message.attempts) == (message.pk, "delivered", 2)
    assert len(receiver.letters) == 1


def test_a_worker_that_dies_before_it_records_sends_again_under_the_same_id(
    publish: Publish, receiver: CallbackReceiver
) -> None:
    message = publish()

    (claimed,) = queue.claim_due()
    attempt = delivery.prepare(claimed)()
    make_due()
    turn()
    queue.settle(claimed, attempt, 1)  # a zombie's record changes nothing

    message.refresh_from_db()
    assert [letter.headers["webhook-id"] for letter in receiver.letters] == [str(message.pk)] * 2
    assert [letter.body for letter in receiver.letters[:1]] == [letter.body for letter in receiver.letters[1:]]
    assert (message.state, len(message.log)) == ("delivered", 1)


def test_a_stopped_worker_gives_its_messages_back_at_no_attempt(publish: Publish) -> None:
    message = publish()
    (claimed,) = queue.claim_due()

    queue.Lease([claimed]).release(timed_out=False)

    message.refresh_from_db()
    assert (message.claim_token, message.attempts) == (None, 0)
    assert len(queue.claim_due()) == 1


def test_a_batch_has_one_message_of_each_target(publish: Publish, receiver: CallbackReceiver) -> None:
    for _ in range(3):
        publish()
    other = endpoints.create_endpoint(user_id=uuid4(), url=receiver.url, events=["document.failed"]).endpoint
    endpoints.publish(user_id=other.user_id, type="document.failed", data={})

    claimed = queue.claim_due()

    assert len(claimed) == 2
    assert {message.user_id for message in claimed} == {TENANT, other.user_id}


def test_due_messages_wake_one_worker_and_paused_ones_none(publish: Publish) -> None:
    def claimable() -> int:
        with connection.cursor() as cursor:
            return queue.count_claimable(cursor, most=4)

    assert claimable() == 0
    publish()
    publish()
    assert claimable() == 1
    with queue.SLOTS.hold() as mine:
        assert (mine, claimable()) == (True, 0)

    WebhookEndpoint.objects.update(paused_until=Now() + timedelta(seconds=60))

    assert (claimable(), turn()) == (0, 0)


def test_a_bug_of_ours_is_retried_and_not_held_against_the_endpoint(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = publish()
    monkeypatch.setattr(delivery, "post", lambda *args: 1 / 0)

    turn()

    message.refresh_from_db()
    assert (message.state, message.last_error) == ("queued", "internal")
    assert WebhookEndpoint.objects.get().failures == 0


def test_what_has_ended_is_deleted_after_its_time(publish: Publish) -> None:
    kept, delivered, failed = publish(), publish(), publish()
    old = Now() - timedelta(days=31)
    Message.objects.filter(pk=delivered.pk).update(state="delivered", finished_at=old)
    Message.objects.filter(pk=failed.pk).update(state="failed", finished_at=Now())

    periodic.delete_finished_messages()

    assert set(Message.objects.values_list("pk", flat=True)) == {kept.pk, failed.pk}


def test_one_tenants_receivers_hold_a_few_threads(publish: Publish, receiver: CallbackReceiver) -> None:
    owners = [TENANT] * 4 + [uuid4()]
    for owner in owners[1:]:
        endpoints.create_endpoint(user_id=owner, url=receiver.url, events=["document.failed"])
    for owner in {*owners}:
        endpoints.publish(user_id=owner, type="document.failed", data={})

    held = queue.claim_due()

    assert sorted(message.user_id for message in held) == sorted([TENANT] * queue.AT_ONCE_OF_TENANT + owners[-1:])
    assert queue.claim_due(held) == []  # the others of this tenant wait
    assert [message.user_id for message in queue.claim_due(held[:0])] == [TENANT] * 2


def test_a_slow_receiver_holds_up_no_other(
    publish: Publish, receiver: CallbackReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast_is_settled = publish(), threading.Event()
    fast = endpoints.create_endpoint(user_id=uuid4(), url=f"{receiver.url}/fast", events=["document.failed"]).endpoint
    for _ in range(3):
        endpoints.publish(user_id=fast.user_id, type="document.failed", data={})

    def post(url: str, *args: object) -> Attempt:
        if not url.endswith("/fast"):
            assert fast_is_settled.wait(60)
        return Attempt(status=200)

    def settle(message: Message, attempt: Attempt, milliseconds: int) -> None:
        settle_really(message, attempt, milliseconds)
        if not Message.objects.filter(target_id=fast.pk, state="queued").exists():
            fast_is_settled.set()

    settle_really = queue.settle
    monkeypatch.setattr(delivery, "post", post)
    monkeypatch.setattr(queue, "settle", settle)

    assert turn() == 4

    slow.refresh_from_db()
    assert slow.state == "delivered"


@pytest.mark.slow
@pytest.mark.parametrize(("point", "letters"), [("outbox:claimed", 1), ("outbox:sent", 2)])
def test_a_killed_worker_loses_no_message(
    point: str, letters: int, endpoint: NewSecret, receiver: CallbackReceiver, tmp_path: Path
) -> None:
    (tmp_path / f"{point}~1").touch()
    environment = {"ACCESSA_FAILPOINTS": tmp_path, "WEBHOOKS_ALLOW_LOOPBACK": "true"}
    with connection.cursor() as cursor:
        create_jobs(cursor, 1, "noop")
        cursor.execute("UPDATE webhook_endpoints SET user_id = (SELECT user_id FROM upload_jobs)")

    with running_cluster(workers=1, **environment):
        wait_until(lambda: not (tmp_path / f"{point}~1").exists(), seconds=20)
        make_due()
        wait_until(lambda: Message.objects.filter(state="delivered").exists(), seconds=20)

    message = Message.objects.get()
    assert message.attempts == 2
    assert [letter.headers["webhook-id"] for letter in receiver.letters] == [str(message.pk)] * letters
