"""A tenant's connected systems as its page shows them: how each is, what it has brought, what is to be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import OuterRef, Subquery
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from accounts.errors import not_found
from accounts.rls import as_tenant
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth.services import FIXTURE_ACCOUNT
from integrations.sync import sync_jobs
from integrations.sync.sync_jobs import MOST_DETAILS
from portal import user_messages
from portal.user_messages import SyncProblem
from vendors.error_codes import VENDOR_ANSWER_INVALID, VENDOR_AWAY, VENDOR_UNREACHABLE

MOST = 50  # sources of a tenant that are shown, the newest
LONGEST_NAME = 12  # Google's accounts are known here by a digest only
COUNTED = 10_000  # records are counted so far: a page never counts a million
# Of a job's details, those that are no records: its tokens, its pages.
TOKEN, PAGE = "token", "page:"
A_WHILE = timedelta(minutes=1)
AWAY = (VENDOR_AWAY, "VENDOR_UNAVAILABLE", VENDOR_UNREACHABLE, VENDOR_ANSWER_INVALID)
STATUS = ConnectedSource.Status
TELL_OF_CLIENTS = (Provider.HUBSPOT, Provider.QUICKBOOKS)
COUNTS = """
SELECT s.id,
       (SELECT count(*) FROM (SELECT FROM source_documents d
            WHERE d.user_id = s.user_id AND d.source_id = s.id AND d.deleted_at IS NULL LIMIT %(most)s) records),
       (SELECT count(*) FROM (SELECT FROM client_intelligence c
            WHERE c.user_id = s.user_id AND c.source_id = s.id LIMIT %(most)s) clients)
FROM connected_sources s WHERE s.id = ANY(%(ids)s)
"""


@dataclass(frozen=True, slots=True)
class Connection:
    """A source with its newest sync; what it has brought, by words."""

    source: ConnectedSource
    job: IngestionJob | None
    records: int
    clients: int

    @property
    def id(self) -> UUID:
        return self.source.pk

    @property
    def name(self) -> str:
        """Tell two accounts of one provider apart."""
        if self.source.account == FIXTURE_ACCOUNT:
            return "Recorded answers"
        is_named = self.source.account and self.source.status != STATUS.DISCONNECTED
        return f"Account {self.source.account[:LONGEST_NAME]}" if is_named else "Account"

    @property
    def is_syncing(self) -> bool:
        return self.job is not None and self.job.status in sync_jobs.ACTIVE

    @property
    def standing(self) -> str:
        """One of syncing, leaving, broken, failed, ready, waiting."""
        if self.source.status == STATUS.DISCONNECTED:
            return "leaving"
        if self.source.status == STATUS.ERROR:
            return "broken"
        if self.is_syncing:
            return "syncing"
        if self.job is not None and self.job.status == IngestionJob.Status.FAILED:
            return "failed"
        return "ready" if self.source.last_synced_at else "waiting"

    @property
    def label(self) -> str:
        return user_messages.CONNECTIONS[self.standing]

    @property
    def trouble(self) -> SyncProblem | None:
        """Return what is wrong, and whether connecting anew mends it."""
        if self.standing == "broken":
            return user_messages.sync_problem(self.source.status_message, self.source.provider, is_broken=True)
        if self.standing == "failed" and self.job is not None:
            return user_messages.sync_problem(self.job.error_message, self.source.provider)
        return None

    @property
    def progress(self) -> str:
        """Say how far the newest sync is, or why it does not go on."""
        job = self.job
        if job is None:
            return user_messages.BEGINS
        said = f"{job.items_seen:,} records looked at, {job.items_written:,} of them new or changed."
        if waits := _waits(job):
            waits = waits.format(name=Provider(self.source.provider).label)
            return f"{said} {waits}" if job.items_seen else waits
        return said if job.items_seen else user_messages.BEGINS

    @property
    def brought(self) -> str:
        """Say what can be found here now."""
        found = [_counted(self.records, "record")]
        if self.source.provider in TELL_OF_CLIENTS:
            found.append(_counted(self.clients, "client"))
        return ", ".join(found)

    @property
    def unread(self) -> int:
        """Return how many records the newest sync could not read."""
        if self.job is None:
            return 0
        details, failed = self.job.error_details, self.job.items_failed
        if len(details) < MOST_DETAILS:  # none was dropped, and what is told again is counted but told once
            failed = min(failed, sum(not _is_of_the_sync(each) for each in details))
        else:
            failed -= sum(each.get("external_id") == TOKEN for each in details)
        return int(failed)


def _is_of_the_sync(detail: Mapping[str, str]) -> bool:
    """Tell a refresh and a page that had to wait (``syncs.note``) from a record that could not be read."""
    told = detail.get("external_id", "")
    return told == TOKEN or told.startswith(PAGE)


def _waits(job: IngestionJob) -> str:
    """Say why a sync has not gone on for a minute; "" of one that has."""
    since = timezone.now() - A_WHILE
    if job.status == IngestionJob.Status.QUEUED:
        return user_messages.QUEUES if job.created_at < since else ""
    here = (TOKEN, f"{PAGE}{job.page}")
    stuck = list(takewhile(lambda each: each.get("external_id") in here, reversed(job.error_details)))
    first = parse_datetime(stuck[-1].get("at", "")) if stuck else None
    if first is None or first > since:
        return ""
    return user_messages.SILENT if stuck[0].get("code") in AWAY else user_messages.CONTINUES


def _counted(number: int, noun: str) -> str:
    if number > COUNTED:
        return f"more than {COUNTED:,} {noun}s"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Offered:
    """A provider, and the tenant's accounts there. ``way`` is how to connect one: "consent", "recorded" or ""."""

    slug: str
    name: str
    connections: Sequence[Connection]
    way: str

    @property
    def is_connected(self) -> bool:
        return any(each.standing != "leaving" for each in self.connections)


def offered(user_id: UUID) -> list[Offered]:
    """Return every provider with the tenant's accounts there."""
    with as_tenant(user_id):
        own = ConnectedSource.objects.filter(user_id=user_id)
        found = _with_jobs(list(own.annotate(newest=_newest()).order_by("-created_at", "id")[:MOST]))
    return [
        Offered(slug, str(name), [each for each in found if each.source.provider == slug], way(slug))
        for slug, name in Provider.choices
    ]


def one(user_id: UUID, source_id: UUID) -> ConnectedSource:
    """Return a source of the tenant's; raise ``Refused("NOT_FOUND")`` for what is another's or is not there."""
    with as_tenant(user_id):
        found = ConnectedSource.objects.filter(user_id=user_id, pk=source_id).first()
    if found is None:
        raise not_found()
    return found


def way(provider: str) -> str:
    """Return how this deployment connects an account of a provider."""
    if settings.INTEGRATIONS_USE_FIXTURES:
        return "recorded"
    return "consent" if settings.CONNECTORS[provider]["client_id"] else ""


def _newest() -> Subquery:
    jobs = IngestionJob.objects.filter(source=OuterRef("pk"), user_id=OuterRef("user_id"))
    return Subquery(jobs.order_by("-created_at").values("pk")[:1])


def _with_jobs(sources: Sequence[ConnectedSource]) -> list[Connection]:
    newest = {source.pk: getattr(source, "newest", None) for source in sources}
    jobs = IngestionJob.objects.defer("cursor").in_bulk([pk for pk in newest.values() if pk])
    with connection.cursor() as cursor:
        cursor.execute(COUNTS, {"most": COUNTED + 1, "ids": list(newest)})
        counts = {pk: (records, clients) for pk, records, clients in cursor.fetchall()}
    return [Connection(source, jobs.get(newest[source.pk]), *counts.get(source.pk, (0, 0))) for source in sources]
