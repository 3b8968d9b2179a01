"""Deletion of an account with all that it has stored: a request that closes it, and background work that ends it.

Each step commits with what it has counted, so a process that dies loses nothing and repeats one step at most.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts import api_tokens, rate_limit, sessions
from accounts.audit.log import record_action
from accounts.errors import ApiError, ErrorCode
from accounts.models import AccountDeletion, ApiToken, User
from documents import services
from documents.models import Document, ObjectDeletion
from embeddings.models import VectorIndex
from embeddings.search_engine.entries import EngineUnavailable, load_engine
from integrations.disconnect import disconnect_source
from integrations.models import ConnectedSource
from jobs.advisory_locks import session_lock
from jobs.cluster import maintenance
from outbox import search_feed
from outbox.mails.account_mails import DELETED, enqueue_mail
from outbox.models import Message

log = logging.getLogger("accessa.portal")

THREAD = "account-deletion"
STAFF_ACCOUNT = ErrorCode(
    "STAFF_ACCOUNT", _("An account of staff is not deleted here: a superuser takes its rights away first."), status=409
)
# Of connected systems: their own queue deletes these, a page at a time. Counted when the deletion is requested.
COUNTED = ("connected_sources", "source_documents", "client_intelligence")
# What is left when the documents and connected systems are gone.
TABLES = (
    "answer_feedback", "saved_questions", "tags", "webhook_endpoints", "outbox", "idempotency_keys", "legacy_documents",
    "legacy_tenants", "campaign_tenants", "active_models", "posting_blocks", "posting_segments", "storage_usage",
    "tenant_budgets", "api_tokens", "user_sessions",
)  # fmt: skip
SEARCH_ENGINE = "search_engine"  # its entries, beside the tables
# By the account's id alone: what was paid to vendors, who did what when, and the certificate.
KEPT = ("purchases", "daily_spends", "audit_entries", "account_deletions")


def request_deletion(user: User, *, by: User | None, reason: str) -> AccountDeletion:
    """Close an account at once and start its deletion. It cannot be undone.

    ``by`` is its owner or a member of staff, None the command line. Raises ``ApiError``: STAFF_ACCOUNT,
    REASON_REQUIRED.
    """
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user.pk)
        if user.is_staff or user.is_superuser:
            raise ApiError(STAFF_ACCOUNT)
        if deletion := AccountDeletion.objects.filter(user_id=user.pk).first():
            return deletion
        record_action(
            by=by, action="users.delete", reason=reason, object_type="user", object_id=user.pk, tenant_id=user.pk
        )
        user.is_active = False
        user.save(update_fields=["is_active"])
        sessions.end_sessions(user.pk)
        api_tokens.revoke_tokens(ApiToken.objects.filter(user=user), by=by, reason=reason)
        return AccountDeletion.objects.create(
            user_id=user.pk, email=user.email, language=user.language, deleted=_count(user.pk)
        )


def certificate(deletion: AccountDeletion) -> dict[str, object]:
    """Return what was deleted, as rows of each table, and which tables keep the account's id."""
    return {
        "certificate": deletion.pk,
        "account": deletion.user_id,
        "requested_at": deletion.requested_at,
        "completed_at": deletion.completed_at,
        "deleted": deletion.deleted,
        "kept": KEPT,
    }


def start_deletions() -> None:
    """Run ``advance_deletions`` in the background if there is anything to do."""
    if AccountDeletion.objects.exclude(completed_at__isnull=False, email=None).exists():
        maintenance.start_in_background(THREAD, advance_deletions, log=log, broke_off="Deleting an account broke off")


def advance_deletions() -> None:
    for pk in AccountDeletion.objects.filter(completed_at=None).order_by("requested_at").values_list("pk", flat=True):
        with session_lock(f"{THREAD}:{pk}") as is_locked:
            if is_locked:  # no other cluster counts the same entries of the search engine
                _advance(pk)
    _forget_addresses()


def _advance(pk: UUID) -> None:
    """Delete what can be deleted now; the rest waits for connectors' queues, leases of workers, and the file store."""
    deletion = AccountDeletion.objects.get(pk=pk)
    documents = Document.objects.filter(user_id=deletion.user_id).order_by("pk")
    _delete_from_engine(deletion)
    while document := documents.first():
        with transaction.atomic():
            _add(pk, services.delete_rows(document))
        services.delete_objects(document.pk)
    if not _delete_from_engine(deletion):
        return
    sources = ConnectedSource.objects.filter(user_id=deletion.user_id)
    owner = User.objects.filter(pk=deletion.user_id).first()
    for source in sources.exclude(status=ConnectedSource.Status.DISCONNECTED):
        disconnect_source(source, by=owner, reason="The account is being deleted.")
    if sources.exists():
        return
    with transaction.atomic():
        _add(pk, _delete_rest(deletion.user_id))
    _complete(deletion)


def _delete_from_engine(deletion: AccountDeletion) -> bool:
    """Delete what the search engine has of the account; tell whether nothing is left there, or on its way."""
    if not search_feed.is_enabled():
        return True
    try:
        entries = load_engine().delete_tenant(deletion.user_id)
    except EngineUnavailable:
        return False
    with transaction.atomic():
        _add(deletion.pk, {SEARCH_ENGINE: entries})
    return not search_feed.pending_documents(deletion.user_id, most=1)


def _complete(deletion: AccountDeletion) -> None:
    """Complete a deletion once no file, copy at a vendor or index is left."""
    for model in (ObjectDeletion, VectorIndex, Document):
        if model._default_manager.filter(user_id=deletion.user_id).exists():
            return
    with transaction.atomic():
        completed = AccountDeletion.objects.filter(pk=deletion.pk, completed_at=None).update(completed_at=Now())
        if completed and deletion.email:
            enqueue_mail(deletion.pk, DELETED)


def _forget_addresses() -> None:
    """Delete the addresses to which certificates were mailed, or could not be."""
    unsent = Message.objects.filter(state=Message.State.QUEUED, payload__type=DELETED).values("target_id")
    mailed = AccountDeletion.objects.filter(completed_at__isnull=False, email__isnull=False)
    mailed.exclude(pk__in=unsent).update(email=None)


def _add(pk: UUID, deleted: Mapping[str, int]) -> None:
    """Add rows to the certificate, in the transaction that deletes them. Its lock makes clusters take turns."""
    deletion = AccountDeletion.objects.select_for_update().get(pk=pk)
    deletion.deleted = {name: rows for name, rows in (Counter(deletion.deleted) + Counter(deleted)).items() if rows}
    deletion.save(update_fields=["deleted"])


def _count(user_id: UUID) -> dict[str, int]:
    with connection.cursor() as cursor:
        counts = {}
        for table in COUNTED:
            cursor.execute(f"SELECT count(*) FROM {table} WHERE user_id = %s", [user_id])
            (counts[table],) = cursor.fetchone()
    return {table: rows for table, rows in counts.items() if rows}


def _delete_rest(user_id: UUID) -> dict[str, int]:
    deleted = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE user_id = %s", [user_id])
            deleted[table] = cursor.rowcount
        # Clients of no connected system: no queue deletes them.
        cursor.execute("DELETE FROM client_intelligence WHERE user_id = %s", [user_id])
        cursor.execute(rate_limit.DELETE_SEARCHES, [str(user_id)])
        cursor.execute("DELETE FROM pauses WHERE kind = 'tenant' AND subject = %s", [str(user_id)])
    deleted["users"] = User.objects.filter(pk=user_id).delete()[1].get("accounts.User", 0)
    return deleted
