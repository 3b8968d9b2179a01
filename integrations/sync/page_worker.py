"""Worker of one page of a sync: fetches its items, embeds and writes them, and closes the page."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import structlog
from django.db.utils import DataError, IntegrityError

from accounts.errors import ApiError
from embeddings.error_codes import TEXT_REFUSED
from integrations import disconnect
from integrations.error_codes import CURSOR_EXPIRED, ITEM_NOT_STORED, ITEM_UNREADABLE, PAGE_REPEATED
from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth import token_refresh
from integrations.providers.id_listing_client import retry_cursor
from integrations.providers.interface import (
    FailedItem,
    McpClient,
    Page,
    Provider,
    RawItem,
    Stream,
    TokenRefused,
    provider_module,
)
from integrations.records import orphaned_imports, pdf_import, record_embedding, tombstones, writer
from integrations.records.drafts import (
    MAPPING_ERRORS,
    Draft,
    StoredRecords,
    embedding_batches,
    make_draft,
    newest_versions,
)
from integrations.records.record_embedding import Vectors
from integrations.sync import lifecycle
from integrations.sync.lifecycle import CAPPED, RETRY, Kind, PageCounts
from integrations.sync.pgmq import Body, Message, raise_if_stopping
from integrations.transports import make_client
from jobs import failpoints
from jobs.outcomes import Permanent, Retryable

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

MOST_RETRIES = 1_000  # ids of a stream in a cursor, some 40 KB; a delta with more of them leaves the cursor as it was
Listing = tuple[Stream, str]  # a stream, and the kind of its listing: full or delta


def run_page(message: Message) -> None:
    """Run a message's page; its exceptions decide what becomes of the message (``pgmq_consumer``).

    Does nothing for a page that is closed already, or whose sync has ended. Safe to repeat whatever interrupts it:
    written records are found unchanged, and embedded texts are not bought again.
    """
    job = lifecycle.begin_page(message.body)
    if job is None:
        return
    if job.kind == Kind.FORGET:
        disconnect.purge_batch(message, job)
        return
    provider = provider_module(job.source.provider)
    listings = _listings(provider, job.kind)
    if message.body.stream < len(listings):
        PageRun(message, job, provider, listings).run()
        return
    # The end of a full sync: records that it has not seen, of the streams that were complete, are gone.
    streams = [stream for stream in provider.STREAMS if stream.full]
    capped = {stream.document_type for stream in streams if stream.name in job.cursor.get(CAPPED, ())}
    types = {stream.document_type for stream in streams} - capped if capped else None
    tombstones.mark_unseen_deleted(message, job.source, provider, types)
    orphaned_imports.withdraw_orphans(job.source_id)
    lifecycle.close_page(message, job, PageCounts(), next_body=None)


def _listings(provider: Provider, kind: str) -> list[Listing]:
    """Return a sync's listings, in order: a full one ends with the changes of streams that move while it reads."""
    if kind == Kind.DELTA:
        return [(stream, kind) for stream in provider.STREAMS if stream.delta]
    full = [stream for stream in provider.STREAMS if stream.full]
    return [*((stream, kind) for stream in full), *((stream, Kind.DELTA) for stream in full if stream.moves)]


class PageRun:
    def __init__(self, message: Message, job: IngestionJob, provider: Provider, listings: Sequence[Listing]) -> None:
        self._message, self._job, self._provider, self._listings = message, job, provider, listings
        self._stream, self._kind = listings[message.body.stream]
        # The end of a full sync, which reads what has changed since it began.
        self._is_catch_up = self._kind != job.kind
        self._counts = PageCounts()

    def run(self) -> None:
        try:
            source, token = token_refresh.fresh_token(self._job.source_id)
        except Retryable as failure:  # spec 002 §2: the message reappears, and the sync shows that something failed
            lifecycle.note_error(self._job.pk, "token", failure.code, failed=1)
            raise
        with closing(make_client(source, token)) as client:
            try:
                cursor, page = self._fetch(client, source)
                failpoints.failpoint("page:fetched")
                self._write(client, source, page)
            except TokenRefused:
                token_refresh.expire_token(source.pk, source.token_expires_at)
                raise
        self._close(page, cursor)

    def _fetch(self, client: McpClient, source: ConnectedSource) -> tuple[dict[str, Any], Page]:
        body, name = self._message.body, self._stream.name
        cursor, page_token = dict(self._job.cursor), body.page_token
        if body.stream == 0 and page_token is None:  # before anything is listed: later changes are listed again
            cursor = client.begin(self._job.kind)
            if self._job.kind == Kind.FULL:  # failed ids are kept; a delta fetches them again
                retries = _merge_ids(source.cursor.get(RETRY, {}), self._job.cursor.get(RETRY, {}))
                cursor = _with_retries(cursor, retries)
        since = None
        if self._is_catch_up:
            since = cursor.get(name)
        elif self._kind == Kind.DELTA:
            since = source.cursor.get(name)
            page_token = page_token or retry_cursor(source.cursor.get(RETRY, {}).get(name, ()))
        page = client.page(self._stream, self._kind, since, page_token)
        if page.next_page is not None and page.next_page == body.page_token:
            raise Retryable(PAGE_REPEATED)
        return cursor, page

    def _write(self, client: McpClient, source: ConnectedSource, page: Page) -> None:
        self._counts.seen = len(page.items) + len(page.failed)
        for failed in page.failed:
            self._counts.add_failure(failed)
        items = newest_versions(page.items)
        drafts = list(filter(None, [self._make_draft(item) for item in items if not item.deleted]))
        if drafts:
            stored = StoredRecords(source, [draft.external_id for draft in drafts])
            vectors = record_embedding.tenant_vectors(source.user_id)
            self._write_texts(source, stored, [draft for draft in drafts if not draft.record.is_pdf], vectors)
            for draft in drafts:  # PDFs last: the others need not wait for an upload
                if draft.record.is_pdf and self._import_pdf(client, source, stored, draft):
                    self._write_group(source, [draft], vectors)
        tombstones.mark_deleted(self._message, source, self._provider, [item for item in items if item.deleted])
        orphaned_imports.withdraw_orphans(source.pk)

    def _make_draft(self, item: RawItem) -> Draft | None:
        try:
            return make_draft(self._provider, item)
        except MAPPING_ERRORS as error:
            self._add_unreadable(item.external_id, error)
            return None

    def _add_unreadable(self, external_id: str, error: Exception) -> None:
        kind = type(error).__name__
        log.warning("A record cannot be read", sync=str(self._job.pk), stream=self._stream.name, error=kind)
        self._counts.add_failure(FailedItem(external_id, ITEM_UNREADABLE))

    def _write_texts(
        self, source: ConnectedSource, stored: StoredRecords, drafts: Sequence[Draft], vectors: Vectors
    ) -> None:
        for draft in drafts:
            draft.missing_texts = list(stored.missing_texts(draft, vectors.model))
        vectors.reuse([text for draft in drafts for text in draft.missing_texts])
        for batch in embedding_batches(drafts, vectors):
            raise_if_stopping()
            texts = [text for draft in batch for text in draft.missing_texts]
            vectors.buy(texts)
            failpoints.failpoint("page:embedded")
            for group in writer.transaction_groups(batch):
                if not texts:  # paid vectors are written even when the worker has to stop
                    raise_if_stopping()
                self._write_group(source, group, vectors)

    def _import_pdf(self, client: McpClient, source: ConnectedSource, stored: StoredRecords, draft: Draft) -> bool:
        raise_if_stopping()
        try:
            draft.upload_document_id = stored.upload_id(draft.item) or pdf_import.import_pdf(
                source=source, client=client, item=draft.item, record=draft.record, job_id=self._job.pk
            )
            return True
        except ApiError as error:  # for today, or while the storage is unavailable
            failed = FailedItem(draft.external_id, error.code, retry=error.retry_after is not None)
        except Permanent as failure:
            failed = FailedItem(draft.external_id, failure.code)
        except Retryable as failure:  # of this file only: an unavailable vendor raises ``Wait``
            failed = FailedItem(draft.external_id, failure.code, retry=True)
        self._counts.add_failure(failed)
        return False

    def _write_group(self, source: ConnectedSource, group: Sequence[Draft], vectors: Vectors) -> None:
        """Write records together; halve a failing group until the record at fault stands alone."""
        try:
            writer.write_records(self._message, source, self._provider, group, vectors)
        except (DataError, IntegrityError, *MAPPING_ERRORS) as error:
            if len(group) > 1:
                half = len(group) // 2
                self._write_group(source, group[:half], vectors)
                self._write_group(source, group[half:], vectors)
            elif isinstance(error, MAPPING_ERRORS):
                self._add_unreadable(group[0].external_id, error)
            else:  # a number too large, say: this record's fault
                self._counts.add_failure(FailedItem(group[0].external_id, ITEM_NOT_STORED))
            return
        for draft in group:
            if any(text.sha in vectors.refused for text in draft.missing_texts):
                self._counts.add_detail(draft.external_id, TEXT_REFUSED)

    def _close(self, page: Page, cursor: Mapping[str, Any]) -> None:
        body = self._message.body
        next_body: Body | None = body.next_stream()
        cursor = self._cursor_after(page, cursor)
        if page.expired and not self._is_catch_up:  # the provider has forgotten the cursor: start a full sync
            if any(detail["code"] == CURSOR_EXPIRED for detail in self._job.error_details):
                raise Permanent(CURSOR_EXPIRED)
            self._counts.add_detail(self._stream.name, CURSOR_EXPIRED)
            next_body = replace(body, kind=Kind.FULL, stream=0, page_token=None, page=body.page + 1)
            cursor = _with_retries({}, cursor.get(RETRY, {}))
        elif page.next_page is not None:
            next_body = body.next_page(page.next_page)
        elif self._job.kind != Kind.FULL and body.stream + 1 == len(self._listings):
            next_body = None
        lifecycle.close_page(self._message, self._job, self._counts, next_body=next_body, cursor=cursor)

    def _cursor_after(self, page: Page, cursor: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sync's cursor as of this page, each of whose records was written or counted as failed."""
        name = self._stream.name
        retries = _merge_ids(cursor.get(RETRY, {}), {name: self._counts.retry})
        has_too_many = len(retries.get(name, ())) > MOST_RETRIES
        after = _with_retries(cursor, {stream: ids[:MOST_RETRIES] for stream, ids in retries.items()})
        is_nameless = self._job.kind == Kind.FULL and any(failed.external_id.endswith(":?") for failed in page.failed)
        if page.capped or is_nameless or has_too_many or (page.expired and self._is_catch_up):
            after[CAPPED] = sorted({*cursor.get(CAPPED, ()), name})
        if page.cursor is not None and not self._is_catch_up:  # the next delta begins where the full sync began
            after[name] = page.cursor
        return after


def _merge_ids(*lists: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    names = sorted({name for each in lists for name in each})
    merged = {name: list(dict.fromkeys(id for each in lists for id in each.get(name, ()))) for name in names}
    return {name: ids for name, ids in merged.items() if ids}


def _with_retries(cursor: Mapping[str, Any], retries: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {**cursor, RETRY: retries} if retries else dict(cursor)
