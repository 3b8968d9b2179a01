"""Check of the broker: a NOTIFY reaches another session, or Redis or SQS answers."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django_q.brokers import get_broker

from accessa.doctor.findings import Finding, error
from jobs.cluster.notify_broker import NotifyBroker
from jobs.safe_errors import safe_error_name


def check_broker() -> Iterator[Finding]:
    """Notify a channel of doctor's own and listen on another session: a connection pooler may lose it."""
    broker = get_broker()
    if not isinstance(broker, NotifyBroker):
        try:
            reason = "" if broker.ping() else "."
        except Exception as failure:  # of another library's client: Redis, SQS
            reason = f": {safe_error_name(failure)}."
        if reason:
            remedy = "Correct BROKER_REDIS_URL or BROKER_SQS_REGION."
            yield error(f"The broker ({type(broker).__name__}) does not answer{reason}", remedy)
        return
    channel = f"doctor_{uuid4().hex[:12]}"
    listener = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        listener.ensure_connection()
        session: Any = listener.connection
        session.autocommit = True
        session.execute(f"LISTEN {channel}")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [channel])
        notifications = list(session.notifies(timeout=3.0, stop_after=1))
    finally:
        listener.close()
    if not notifications:
        yield error(
            "A NOTIFY is lost: workers find new work a second late, and advisory locks do not hold.",
            "Connect the workers past the pooler, or in its session mode.",
        )
