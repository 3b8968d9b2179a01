"""Sender of the search engine's feed: what a document's passages are now, in the place of what the engine has."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from embeddings.search_engine.entries import EngineUnavailable, Entry, load_engine, read_entries
from outbox import error_codes, search_feed
from outbox.attempts import Attempt
from outbox.models import Message
from vendors import calls
from vendors.vendor_account import Vendor

RETRY_SECONDS = 15.0  # nothing else brings an entry up to date, so that no message is given up


def engine_vendor() -> Vendor:
    """Return the engine as a vendor, whose calls are counted."""
    return Vendor("milvus", settings.MILVUS_URI, requests_per_minute=0)


def prepare(message: Message) -> Callable[[], Attempt]:
    if not search_feed.is_enabled():  # any more: the message is of the time before
        return Attempt
    document_id = UUID(message.payload["document_id"])
    version, entries = read_entries(document_id)
    return partial(send, message.user_id, document_id, entries, version)


def send(user_id: UUID, document_id: UUID, entries: list[Entry], version: int) -> Attempt:
    try:
        with calls.record_call(engine_vendor(), "replace_document"):
            load_engine().replace_document(user_id, document_id, entries, version)
    except EngineUnavailable:
        return Attempt(error_codes.SEARCH_ENGINE_UNAVAILABLE)
    return Attempt()


def record(message: Message, attempt: Attempt) -> None:
    """Delete a message that is sent; searches look up all others. One that failed holds up its tenant's until again."""
    own = Message.objects.filter(pk=message.pk)
    if attempt.code is None:
        own.delete()
    else:
        again = Now() + timedelta(seconds=RETRY_SECONDS)
        own.update(state=Message.State.QUEUED, finished_at=None, due_at=again)
