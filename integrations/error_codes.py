"""Error codes of connected systems: OAuth, syncs, their pages and single records.

In the messages for tenants, ``{name}`` is the provider's name. A sync that is not retryable needs the tenant's consent
again.
"""

from functools import partial

from django.utils.translation import gettext_lazy as _

from accounts.common_error_codes import UNAVAILABLE
from accounts.errors import Context, ErrorCode, staff_error
from documents.error_codes import FILE_TOO_LARGE
from embeddings.error_codes import TEXT_REFUSED
from vendors import error_codes as vendor_codes

sync_failure = partial(ErrorCode, context=Context.SYNC_FAILURE)
reconnect_failure = partial(sync_failure, retryable=False)
page_wait = partial(staff_error, context=Context.PAGE_WAIT)
record_failure = partial(staff_error, context=Context.RECORD_FAILURE)

NOTHING = _("Nothing to do.")
RECONNECT = _("{name} does not let us in any more. Reconnect it.")
TENANT_RECONNECTS = _("The tenant reconnects it on its page of connected systems; nothing that was fetched is lost.")
REPLAY_PAGE = _(
    "Remove the cause, then put its page back (Given-up pages in the admin, or `manage.py replay_ingestion`)."
)
NEXT_DELTA = _("Nothing: the next delta sync tries it again.")
SYNC_AGAIN = _("Sync the source again: `manage.py connectors sync SOURCE_ID`.")
CONNECT_AGAIN = _("The tenant begins again.")

# Syncs
REFRESH_TOKEN_INVALID = reconnect_failure(
    "REFRESH_TOKEN_INVALID",
    RECONNECT,
    _("The provider refuses the refresh token: consent was withdrawn, or has ended."),
    TENANT_RECONNECTS,
)
# The same, as spec 002 §3 spells it in a source's status_message.
REFRESH_TOKEN_INVALID_STATUS = reconnect_failure(
    "refresh_token_invalid", RECONNECT, REFRESH_TOKEN_INVALID.staff_message, TENANT_RECONNECTS
)
VAULT_TOKEN_MISPLACED = reconnect_failure(
    "VAULT_TOKEN_MISPLACED",
    RECONNECT,
    _("A token is not in the vault's row that should hold it: somebody has changed rows."),
    TENANT_RECONNECTS,
    detail=_("The token is not where it was kept."),
)
SCOPES_MISSING = reconnect_failure(
    "SCOPES_MISSING",
    _("{name} does not let us read all that we need. Reconnect it, and allow everything that is asked for."),
    _("The tenant's consent does not cover what is read."),
    TENANT_RECONNECTS,
)
SCOPES_MISSING.explain(
    Context.REQUEST,
    tenant_message="",
    staff_message=_("The tenant did not allow everything that is asked for."),
    remedy=CONNECT_AGAIN,
)
SOURCE_NOT_ACTIVE = reconnect_failure(
    "SOURCE_NOT_ACTIVE",
    RECONNECT,
    _("The source was in error when a page of it was due."),
    TENANT_RECONNECTS,
    status=409,
)
SOURCE_NOT_ACTIVE.explain(
    Context.REQUEST,
    tenant_message=_("It is not connected any more. Reconnect it first."),
    staff_message=_("The source is in error or disconnected."),
    remedy=_("The tenant reconnects it."),
)
vendor_codes.VENDOR_REFUSED.explain(
    Context.SYNC_FAILURE,
    tenant_message=_("{name} refuses what we ask for. Reconnect it, or ask our staff."),
    staff_message=_("The provider works and refuses the request."),
    remedy=_(
        "Compare our app's settings at the provider. Then put the page back (Given-up pages in the admin, or"
        " `manage.py replay_ingestion`)."
    ),
    retryable=False,
)
CAPABILITY_MISSING = sync_failure(
    "CAPABILITY_MISSING",
    _("{name} does not offer what we need to read your records. Ask our staff."),
    _("The provider's MCP server lacks a tool or an argument; the log names it."),
    _("Set that provider's TRANSPORT to rest, and sync again."),
)
CURSOR_EXPIRED = sync_failure(
    "CURSOR_EXPIRED",
    _("Too much changed at {name} while we read it. Sync again."),
    _("The provider forgot the cursor again and again, faster than the sync read."),
    _("Sync again when less changes there; the source starts from the beginning by itself."),
    detail=_("The provider forgets its cursors faster than a sync reads."),
)
vendor_codes.BUDGET_TOO_SMALL.explain(
    Context.SYNC_FAILURE,
    tenant_message=_("A record costs more than your account may spend in a day. Ask our staff."),
    staff_message=_("One record's embedding costs more than its tenant's budget of a whole day."),
    remedy=_(
        "Set another budget with `manage.py budget`. Then put the page back (Given-up pages in the admin, or"
        " `manage.py replay_ingestion`)."
    ),
)
MESSAGE_MALFORMED = sync_failure(
    "MESSAGE_MALFORMED",
    _("It lost its place. Sync again."),
    _("The message of the sync's page could not be read; it is in the archive."),
    _("Sync again. If messages were written by another release, roll forward."),
    status=409,
)
MESSAGE_MALFORMED.explain(
    Context.REQUEST,
    tenant_message="",
    staff_message=_("A given-up page cannot be put back: the message is not a page."),
    remedy=SYNC_AGAIN,
)
MAX_RETRIES_EXCEEDED = sync_failure(  # spec 002 §4
    "max_retries_exceeded",
    _("It broke off too often. Sync again later; if it fails once more, ask our staff."),
    _("One page was tried five times; the log has the code of each attempt, by the sync's id."),
    REPLAY_PAGE,
)
SYNC_STOPPED = sync_failure(
    "SYNC_STOPPED",
    _("Our staff stopped it. Sync again, or ask our staff why."),
    _("Staff stopped the sync; what it had fetched stays."),
    _("Sync again when the reason is gone."),
)
DISCONNECTED = sync_failure(
    "DISCONNECTED", _("It was disconnected."), _("The source was disconnected while it was synced."), NOTHING
)
SOURCE_DISCONNECTED = sync_failure(
    "SOURCE_DISCONNECTED", DISCONNECTED.tenant_message, DISCONNECTED.staff_message, NOTHING
)

# Pages of a sync: they come again by themselves
PROVIDER_NOT_CONFIGURED = page_wait(
    "PROVIDER_NOT_CONFIGURED",
    _("The provider's client is not set here any more."),
    _("Set it again; pages wait."),
    status=409,
    detail=_("This provider is not set up here. Our staff must see to it first."),
)
PROVIDER_NOT_CONFIGURED.explain(
    Context.REQUEST,
    tenant_message=_("This system is not set up here yet. Ask our staff."),
    staff_message=_("No client of ours is set for the provider."),
    remedy=_("See [connectors.md](connectors.md)."),
)
OAUTH_CLIENT_REFUSED = page_wait(
    "OAUTH_CLIENT_REFUSED",
    _("The provider refuses our client's id or secret."),
    _("Set them again ([connectors.md](connectors.md)); pages wait."),
)
TOKEN_BEING_REFRESHED = page_wait("TOKEN_BEING_REFRESHED", _("Another worker refreshes the token at present."), NOTHING)
TOKEN_REFUSED = page_wait(
    "TOKEN_REFUSED", _("The provider refused the access token; the next attempt refreshes it."), NOTHING
)
TOOL_FAILED = page_wait(
    "TOOL_FAILED", _("A tool of the provider's MCP server failed."), _("Look at the provider's status page.")
)
PAGE_REPEATED = page_wait(
    "PAGE_REPEATED", _("The provider names a page as its own next one."), _("If it lasts, tell the provider.")
)
VAULT_KEY_UNKNOWN = page_wait(
    "VAULT_KEY_UNKNOWN",
    _("No key of INTEGRATIONS_VAULT_KEYS opens a token."),
    _("Put the key that it was written with back, at the end."),
)
NOT_RECORDED = page_wait(
    "NOT_RECORDED",
    _("INTEGRATIONS_USE_FIXTURES is on and the fixtures have no response for a request."),
    _("Record it, or set the provider's client."),
)

# Records: the others of their page are stored
ITEM_UNREADABLE = record_failure(
    "ITEM_UNREADABLE", _("A record has another shape than the provider documents."), _("Tell a developer.")
)
ITEM_NOT_STORED = record_failure(
    "ITEM_NOT_STORED", _("The database refused a record."), _("Tell a developer; the log has the traceback.")
)
ITEM_TOO_LARGE = record_failure(
    "ITEM_TOO_LARGE",
    _("A record is larger than is stored."),
    NOTHING,
    retryable=False,
    detail=_("The provider's answer is larger than is taken."),
)
FILE_NOT_GIVEN = record_failure(
    "FILE_NOT_GIVEN",
    _("Drive does not let a PDF be downloaded."),
    _("Its owner allows it there."),
    retryable=False,
    status=403,
)
for code, message, remedy in (
    (TEXT_REFUSED, _("The embedding model refuses a record's text; words still find it."), NOTHING),
    (FILE_TOO_LARGE, _("A PDF on Drive has more than MAX_FILE_BYTES."), _("Nothing, or raise it.")),
    (vendor_codes.VENDOR_UNAVAILABLE, _("The provider answered with a server error, twice."), NEXT_DELTA),
    (vendor_codes.VENDOR_UNREACHABLE, _("The provider could not be reached, twice."), NEXT_DELTA),
    (vendor_codes.VENDOR_ANSWER_INVALID, _("The provider's response cannot be read."), NEXT_DELTA),
    (vendor_codes.VENDOR_AWAY, _("The provider's circuit breaker opened before this record was read."), NEXT_DELTA),
    (
        UNAVAILABLE,
        _("The file store could not be reached when a PDF arrived."),
        _("Look at the store. The next delta sync tries it again."),
    ),
):
    code.explain(Context.RECORD_FAILURE, staff_message=message, remedy=remedy)

# Requests of tenants' pages, commands and the admin
STATE_MISMATCH = ErrorCode(
    "STATE_MISMATCH",
    _("Connecting was not started here, or took too long. Begin again."),
    _("The consent was started elsewhere, or more than half an hour ago."),
    CONNECT_AGAIN,
)
CONSENT_REFUSED = ErrorCode(
    "CONSENT_REFUSED",
    _("You did not allow us to read your records there, so nothing was connected."),
    _("The tenant refused the consent."),
    CONNECT_AGAIN,
)
CODE_REFUSED = staff_error(
    "CODE_REFUSED",
    _("The provider does not accept the consent's code any more."),
    CONNECT_AGAIN,
    detail=_("The provider did not accept the consent. Begin again."),
)
PROVIDER_UNREACHABLE = ErrorCode(
    "PROVIDER_UNREACHABLE",
    _("The other system cannot be reached at present, so nothing was connected. Begin again."),
    _("The provider's token endpoint does not respond."),
    CONNECT_AGAIN,
    status=503,
)
SYNC_ALREADY_ACTIVE = ErrorCode(
    "SYNC_ALREADY_ACTIVE",
    _("Its records are being fetched already."),
    _("A sync of the source is running."),
    _("Wait, or `manage.py connectors stop SOURCE_ID`."),
    status=409,
)
SYNC_NOT_ACTIVE = staff_error(
    "SYNC_NOT_ACTIVE",
    _("No sync of the source is running that could be stopped."),
    _("See `manage.py connectors list`."),
    status=409,
)
SYNC_GONE = staff_error(
    "SYNC_GONE", _("A given-up page cannot be put back: its sync was deleted with its source."), SYNC_AGAIN, status=409
)
SYNC_WENT_ON = staff_error(
    "SYNC_WENT_ON",
    _("A given-up page cannot be put back: its sync has ended or continued elsewhere."),
    SYNC_AGAIN,
    status=409,
)
UNKNOWN_SOURCE = ErrorCode("UNKNOWN_SOURCE")
