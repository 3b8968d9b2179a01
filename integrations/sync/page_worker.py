"""Working one page of a sync: fetched, embedded, written item by item, closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import structlog
from django.db.utils import DataError, IntegrityError

from accounts.errors import ApiError
from integrations.error_codes import CURSOR_EXPIRED, ITEM_NOT_STORED, ITEM_UNREADABLE, PAGE_REPEATED
from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth import token_refresh
from integrations.providers import (
    FailedItem,
    McpClient,
    Page,
    Provider,
    RawItem,
    Stream,
    TokenRefused,
    id_listing,
    provider_module,
)
from integrations.records import changes, orphaned_uploads, pdf_import, purge, record_embedding, tombstones, writer
from integrations.records.changes import MAPPING_ERRORS, Draft, StoredRecords
from integrations.records.record_embedding import Vectors
from integrations.sync import pgmq, sync_jobs
from integrations.sync.pgmq import Body, Message
from integrations.sync.sync_jobs import AGAIN, CAPPED, Kind, PageCounts
from integrations.transports import make_client
from jobs import failpoints
from jobs.outcomes import Permanent, Retryable

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

EXPIRED = CURSOR_EXPIRED
MOST_AGAIN = 1_000  # ids of a stream in a cursor, some 40 KB; a delta with more of them leaves the cursor where it was
Listing = tuple[Stream, str]  # and how it is read: whole, or what has changed


def run_page(message: Message) -> None:
    """Work through a message's page; what it raises says what becomes of the message (``consumer``).

    A page that is closed already, or whose sync has ended, is no work. Whatever interrupts it, it is safe to repeat:
    what was written is found unchanged, and what was embedded is not bought again.
    """
    job = sync_jobs.begin_page(message.body)
    if job is None:
        return
    if job.kind == Kind.FORGET:
        purge.purge_batch(message, job)
        return
    provider = provider_module(job.source.provider)
    listings = _listings(provider, job.kind)
    if message.body.stream < len(listings):
        PageRun(message, job, provider, listings).run()
    else:
        _finish(message, job, provider)


def _listings(provider: Provider, kind: str) -> list[Listing]:
    """Return what a sync reads, in order: a full one ends with the changes of streams that move while it reads."""
    if kind == Kind.DELTA:
        return [(stream, kind) for stream in provider.STREAMS if stream.delta]
    full = [stream for stream in provider.STREAMS if stream.full]
    return [*((stream, kind) for stream in full), *((stream, Kind.DELTA) for stream in full if stream.moves)]


def _finish(message: Message, job: IngestionJob, provider: Provider) -> None:
    """End a full sync: what it has not seen, of the streams that were complete, is gone."""
    streams = [stream for stream in provider.STREAMS if stream.full]
    capped = {stream.document_type for stream in streams if stream.name in job.cursor.get(CAPPED, ())}
    types = {stream.document_type for stream in streams} - capped if capped else None
    tombstones.mark_unseen_deleted(message, job.source, provider, types)
    orphaned_uploads.withdraw_orphans(job.source_id)
    sync_jobs.close_page(message, job, PageCounts(), onward=None)


class PageRun:
    """One page of a stream."""

    def __init__(self, message: Message, job: IngestionJob, provider: Provider, listings: Sequence[Listing]) -> None:
        self._message, self._job, self._provider, self._listings = message, job, provider, listings
        self._stream, self._kind = listings[message.body.stream]
        self._tally = PageCounts()

    def run(self) -> None:
        source, token = self._fresh()
        with closing(make_client(source, token)) as client:
            try:
                cursor, page = self._fetch(client, source)
                failpoints.failpoint("page:fetched")
                self._write(client, source, page)
            except TokenRefused:
                token_refresh.expire_token(source.pk, source.token_expires_at)
                raise
        self._close(page, cursor)

    def _fresh(self) -> tuple[ConnectedSource, str]:
        try:
            return token_refresh.fresh_token(self._job.source_id)
        except Retryable as failure:  # spec 002 §2: the message reappears, and the sync shows that something failed
            sync_jobs.note_refresh_error(self._job, failure.code)
            raise

    def _fetch(self, client: McpClient, source: ConnectedSource) -> tuple[dict[str, Any], Page]:
        body, name = self._message.body, self._stream.name
        cursor, following = dict(self._job.cursor), body.following
        if body.stream == 0 and following is None:  # before anything is listed: what changes meanwhile comes again
            cursor = self._begun(client, source)
        since = None
        if self._settles:
            since = cursor.get(name)
        elif self._kind == Kind.DELTA:
            since = source.cursor.get(name)
            following = following or id_listing.retry_cursor(source.cursor.get(AGAIN, {}).get(name, ()))
        page = client.page(self._stream, self._kind, since, following)
        if page.following is not None and page.following == body.following:
            raise Retryable(PAGE_REPEATED)
        return cursor, page

    @property
    def _settles(self) -> bool:
        """Tell whether this is the end of a full sync, which reads what has changed since it began."""
        return self._kind != self._job.kind

    def _begun(self, client: McpClient, source: ConnectedSource) -> dict[str, Any]:
        """Return where all streams stand, and what is to be tried again: a delta tries it, a full sync leaves it."""
        begun = client.begin(self._job.kind)
        if self._job.kind == Kind.FULL:
            return _with_again(begun, _together(source.cursor.get(AGAIN, {}), self._job.cursor.get(AGAIN, {})))
        return begun

    def _stands(self, cursor: dict[str, Any], page: Page) -> dict[str, Any]:
        """Return the sync's cursor as of this page, all of it written or told."""
        name, again = self._stream.name, _together(cursor.get(AGAIN, {}), {self._stream.name: self._tally.retry})
        too_many = len(again.get(name, ())) > MOST_AGAIN
        stands = _with_again(cursor, {each: ids[:MOST_AGAIN] for each, ids in again.items()})
        is_nameless = self._job.kind == Kind.FULL and any(failed.is_nameless for failed in page.failed)
        if page.capped or is_nameless or too_many or (page.expired and self._settles):
            stands[CAPPED] = sorted({*cursor.get(CAPPED, ()), name})
        if page.cursor is not None and not self._settles:  # from where it began it goes on as long as it reads
            stands[name] = page.cursor
        return stands

    def _write(self, client: McpClient, source: ConnectedSource, page: Page) -> None:
        self._tally.seen = len(page.items) + len(page.failed)
        for failed in page.failed:
            self._tally.add_failure(failed)
        items = changes.newest_versions(page.items)
        ready = list(filter(None, [self._draft(item) for item in items if not item.deleted]))
        if ready:
            self._write_all(client, source, ready)
        gone = [item for item in items if item.deleted]
        tombstones.mark_deleted(self._message, source, self._provider, gone)
        orphaned_uploads.withdraw_orphans(source.pk)

    def _draft(self, item: RawItem) -> Draft | None:
        try:
            return changes.make_draft(self._provider, item)
        except MAPPING_ERRORS as error:
            self._unreadable(item.external_id, error)
            return None

    def _unreadable(self, external_id: str, error: Exception) -> None:
        kind = type(error).__name__
        log.warning("A record cannot be read", sync=str(self._job.pk), stream=self._stream.name, error=kind)
        self._tally.add_failure(FailedItem(external_id, ITEM_UNREADABLE))

    def _write_all(self, client: McpClient, source: ConnectedSource, ready: Sequence[Draft]) -> None:
        stored = StoredRecords(source, [each.external_id for each in ready])
        vectors = record_embedding.of_tenant(source.user_id)
        self._write_texts(source, stored, [each for each in ready if not each.record.is_pdf], vectors)
        for each in ready:  # last: what one of them waits for, the others need not
            if each.record.is_pdf and self._pass_on(client, source, stored, each):
                self._write_group(source, [each], vectors)

    def _write_texts(
        self, source: ConnectedSource, stored: StoredRecords, ready: Sequence[Draft], vectors: Vectors
    ) -> None:
        for each in ready:
            each.missing_texts = list(stored.missing_texts(each, vectors.model))
        vectors.reuse([text for each in ready for text in each.missing_texts])
        for batch in record_embedding.batches(ready, vectors):
            pgmq.raise_if_stopping()
            texts = [text for each in batch for text in each.missing_texts]
            vectors.buy(texts)
            failpoints.failpoint("page:embedded")
            for group in writer.transaction_groups(batch):
                if not texts:  # what was bought is written, whoever waits
                    pgmq.raise_if_stopping()
                self._write_group(source, group, vectors)

    def _pass_on(self, client: McpClient, source: ConnectedSource, stored: StoredRecords, each: Draft) -> bool:
        pgmq.raise_if_stopping()
        known = stored.upload_id(each.item)
        try:
            each.upload_document_id = known or pdf_import.import_pdf(
                source=source, client=client, item=each.item, record=each.record, job_id=self._job.pk
            )
            return True
        except ApiError as refused:  # for today, or while the storage is away
            failed = FailedItem(each.external_id, refused.code, retry=refused.retry_after is not None)
        except Permanent as never:
            failed = FailedItem(each.external_id, never.code)
        except Retryable as failure:  # of this file alone: when the vendor is away, the gate says so
            failed = FailedItem(each.external_id, failure.code, retry=True)
        self._tally.add_failure(failed)
        return False

    def _write_group(self, source: ConnectedSource, group: Sequence[Draft], vectors: Vectors) -> None:
        """Write records together; halve what does not go until the one at fault stands alone."""
        try:
            writer.write_records(self._message, source, self._provider, group, vectors)
        except (DataError, IntegrityError, *MAPPING_ERRORS) as error:
            if len(group) > 1:
                half = len(group) // 2
                self._write_group(source, group[:half], vectors)
                self._write_group(source, group[half:], vectors)
            elif isinstance(error, MAPPING_ERRORS):
                self._unreadable(group[0].external_id, error)
            else:  # a number too large, say: this record's fault
                self._tally.add_failure(FailedItem(group[0].external_id, ITEM_NOT_STORED))
            return
        for each in group:
            if any(text.sha in vectors.refused for text in each.missing_texts):
                self._tally.add_detail(each.external_id, "TEXT_REFUSED")

    def _close(self, page: Page, cursor: dict[str, Any]) -> None:
        body = self._message.body
        onward: Body | None = body.next_stream()
        cursor = self._stands(cursor, page)
        if page.expired and not self._settles:
            onward, cursor = self._restarted(), _with_again({}, cursor.get(AGAIN, {}))
        elif page.following is not None:
            onward = body.next_page(page.following)
        elif self._job.kind != Kind.FULL and body.stream + 1 == len(self._listings):
            onward = None
        sync_jobs.close_page(self._message, self._job, self._tally, onward=onward, cursor=cursor)

    def _restarted(self) -> Body:
        """Begin anew as a full sync: the provider does not remember as far back as the cursor."""
        if any(detail["code"] == EXPIRED for detail in self._job.error_details):
            raise Permanent(EXPIRED, "The provider forgets its cursors faster than a sync reads.")
        self._tally.add_detail(self._stream.name, EXPIRED)
        body = self._message.body
        return replace(body, kind=Kind.FULL, stream=0, following=None, page=body.page + 1)


def _together(*lists: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the ids of several, by stream, each once."""
    names = {name for each in lists for name in each}
    found = {name: list(dict.fromkeys(id for each in lists for id in each.get(name, ()))) for name in sorted(names)}
    return {name: ids for name, ids in found.items() if ids}


def _with_again(cursor: Mapping[str, Any], again: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {**cursor, AGAIN: again} if again else dict(cursor)
