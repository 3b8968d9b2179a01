"""Connected systems of a tenant: status, progress and problems of each source, and how to connect another."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import OuterRef, Subquery
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, ngettext

from accounts.common_error_codes import not_found
from accounts.rls import as_tenant
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth.authorization_flow import FIXTURE_ACCOUNT
from integrations.sync.lifecycle import ACTIVE, MOST_DETAILS
from portal import user_messages
from portal.user_messages import SyncProblem, sync_problem
from vendors.error_codes import VENDOR_ANSWER_INVALID, VENDOR_AWAY, VENDOR_UNAVAILABLE, VENDOR_UNREACHABLE

MAX_SOURCES = 50  # of a tenant, the newest
MAX_NAME_CHARS = 12  # a Google account is known here by a digest only
MAX_COUNT = 10_000  # a page never counts a million records
# Entries of a sync's details that are not records: its tokens, its pages.
TOKEN, PAGE = "token", "page:"
STALLED_AFTER = timedelta(minutes=1)
PROVIDER_AWAY = (VENDOR_AWAY, VENDOR_UNAVAILABLE, VENDOR_UNREACHABLE, VENDOR_ANSWER_INVALID)
STATUS = ConnectedSource.Status
PROVIDERS_WITH_CLIENTS = (Provider.HUBSPOT, Provider.QUICKBOOKS)
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
    source: ConnectedSource
    job: IngestionJob | None
    records: int
    clients: int

    @property
    def id(self) -> UUID:
        return self.source.pk

    @property
    def name(self) -> str:
        """A name that tells two accounts of one provider apart."""
        if self.source.account == FIXTURE_ACCOUNT:
            return gettext("Recorded answers")
        is_named = self.source.account and self.source.status != STATUS.DISCONNECTED
        return gettext("Account %s") % self.source.account[:MAX_NAME_CHARS] if is_named else gettext("Account")

    @property
    def is_syncing(self) -> bool:
        return self.job is not None and self.job.status in ACTIVE

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
        return str(user_messages.CONNECTIONS[self.standing])

    @property
    def problem(self) -> SyncProblem | None:
        if self.standing == "broken":
            return sync_problem(self.source.status_message, self.source.provider, is_broken=True)
        if self.standing == "failed" and self.job is not None:
            return sync_problem(self.job.error_message, self.source.provider)
        return None

    @property
    def progress(self) -> str:
        job = self.job
        if job is None:
            return str(user_messages.BEGINS)
        stalled = _stall_message(job).format(name=Provider(self.source.provider).label)
        if not job.items_seen:
            return stalled or str(user_messages.BEGINS)
        counts = gettext("%(seen)s records looked at, %(written)s of them new or changed.") % {
            "seen": f"{job.items_seen:,}",
            "written": f"{job.items_written:,}",
        }
        return f"{counts} {stalled}".rstrip()

    @property
    def contents(self) -> str:
        counts = [ngettext("%s record", "%s records", self.records) % _format_count(self.records)]
        if self.source.provider in PROVIDERS_WITH_CLIENTS:
            counts.append(ngettext("%s client", "%s clients", self.clients) % _format_count(self.clients))
        return gettext("%s can be found here.") % ", ".join(counts)

    @property
    def unread(self) -> int:
        if self.job is None:
            return 0
        details, failed = self.job.error_details, self.job.items_failed
        if len(details) < MOST_DETAILS:  # complete; a record that failed twice is counted twice and listed once
            # A token refresh and a page that had to wait are no records.
            ids = [detail.get("external_id", "") for detail in details]
            failed = min(failed, sum(external_id != TOKEN and not external_id.startswith(PAGE) for external_id in ids))
        else:
            failed -= sum(detail.get("external_id") == TOKEN for detail in details)
        return int(failed)


def _stall_message(job: IngestionJob) -> str:
    since = timezone.now() - STALLED_AFTER
    if job.status == IngestionJob.Status.QUEUED:
        return str(user_messages.QUEUES) if job.created_at < since else ""
    current = (TOKEN, f"{PAGE}{job.page}")
    waits = list(takewhile(lambda detail: detail.get("external_id") in current, reversed(job.error_details)))
    first_wait = parse_datetime(waits[-1].get("at", "")) if waits else None
    if first_wait is None or first_wait > since:
        return ""
    return str(user_messages.SILENT if waits[0].get("code") in PROVIDER_AWAY else user_messages.CONTINUES)


def _format_count(count: int) -> str:
    return gettext("more than %s") % f"{MAX_COUNT:,}" if count > MAX_COUNT else f"{count:,}"


@dataclass(frozen=True, slots=True)
class ProviderConnections:
    """A provider and the tenant's accounts there. ``way`` is how to connect one: "consent", "recorded" or "".

    ``contact`` is the address of whom to ask for one that is not set up.
    """

    slug: str
    name: str
    connections: Sequence[Connection]
    way: str
    contact: str

    @property
    def is_connected(self) -> bool:
        return any(each.standing != "leaving" for each in self.connections)


def list_providers(user_id: UUID) -> list[ProviderConnections]:
    jobs = IngestionJob.objects.filter(source=OuterRef("pk"), user_id=OuterRef("user_id"))
    newest_job = Subquery(jobs.order_by("-created_at").values("pk")[:1])
    with as_tenant(user_id):
        own = ConnectedSource.objects.filter(user_id=user_id).annotate(newest_job=newest_job)
        sources = list(own.order_by("-created_at", "id")[:MAX_SOURCES])
        newest = {source.pk: source.newest_job for source in sources}
        newest_jobs = IngestionJob.objects.defer("cursor").in_bulk([pk for pk in newest.values() if pk])
        with connection.cursor() as cursor:
            cursor.execute(COUNTS, {"most": MAX_COUNT + 1, "ids": list(newest)})
            counts = {pk: (records, clients) for pk, records, clients in cursor.fetchall()}
    connections = [Connection(each, newest_jobs.get(newest[each.pk]), *counts.get(each.pk, (0, 0))) for each in sources]
    providers = []
    for slug, name in Provider.choices:
        way = "consent" if settings.CONNECTORS[slug]["client_id"] else ""
        way = "recorded" if settings.INTEGRATIONS_USE_FIXTURES else way
        own_connections = [each for each in connections if each.source.provider == slug]
        if way or own_connections or settings.SUPPORT_EMAIL:  # else nobody can connect it, and nobody can be asked
            providers.append(ProviderConnections(slug, str(name), own_connections, way, settings.SUPPORT_EMAIL))
    return providers


def get_source(user_id: UUID, source_id: UUID) -> ConnectedSource:
    """Return a source of the tenant. Raises ``NOT_FOUND`` for another tenant's and for one that does not exist."""
    with as_tenant(user_id):
        source = ConnectedSource.objects.filter(user_id=user_id, pk=source_id).first()
    if source is None:
        raise not_found()
    return source
