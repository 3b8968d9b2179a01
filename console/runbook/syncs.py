"""Of syncs of connected systems, of their pages and of single records."""

from __future__ import annotations

from collections.abc import Mapping

from console.runbook.entry import Remedy

_RECONNECT = "The tenant reconnects it on its page of connected systems; nothing that was fetched is lost."
_REPLAY = "Mend the cause, then put its page back (Given-up pages in the admin, or `manage.py replay_ingestion`)."
_LET_GO = Remedy("The source was disconnected while it was synced.", "Nothing to do.", retry=False)
_INVALID = Remedy(
    "The provider refuses the refresh token: consent was withdrawn, or has ended.", _RECONNECT, retry=False
)

# Of syncs that failed, and of sources in error.
SYNC_FAILED: Mapping[str, Remedy] = {
    "refresh_token_invalid": _INVALID,
    "REFRESH_TOKEN_INVALID": _INVALID,
    "SOURCE_NOT_ACTIVE": Remedy("The source was in error when a page of it was due.", _RECONNECT, retry=False),
    "VAULT_TOKEN_MISPLACED": Remedy(
        "A token is not in the vault's row that should hold it: somebody has changed rows.", _RECONNECT, retry=False
    ),
    "SCOPES_MISSING": Remedy("The tenant's consent does not cover what is read.", _RECONNECT, retry=False),
    "VENDOR_REFUSED": Remedy(
        "The provider is well and refuses the request.", f"Compare our app's settings at the provider. {_REPLAY}"
    ),
    "CAPABILITY_MISSING": Remedy(
        "The provider's MCP server lacks a tool or an argument; the log names it.",
        "Set that provider's TRANSPORT to rest, and sync again.",
    ),
    "CURSOR_EXPIRED": Remedy(
        "The provider forgot the cursor again and again, faster than the sync read.",
        "Sync again when less changes there; the source begins anew by itself.",
    ),
    "BUDGET_TOO_SMALL": Remedy(
        "One record's embedding costs more than its tenant's budget of a whole day.",
        f"`manage.py budget` sets another. {_REPLAY}",
    ),
    "MESSAGE_MALFORMED": Remedy(
        "The message of the sync's page could not be read; it is in the archive.",
        "Sync again. If messages were written by another release, roll forward.",
        retry=False,
    ),
    "max_retries_exceeded": Remedy(
        "One page was tried five times; the log has the code of each try.", f"Read it by the sync's id. {_REPLAY}"
    ),
    "SYNC_STOPPED": Remedy(
        "Staff has stopped the sync; what it had brought stays.", "Sync again when the reason is gone.", retry=False
    ),
    "DISCONNECTED": _LET_GO,
    "SOURCE_DISCONNECTED": _LET_GO,
}
# What a page's line in the log says when it is not done: it comes again by itself.
PAGE_WAITS: Mapping[str, Remedy] = {
    "PROVIDER_NOT_CONFIGURED": Remedy("The provider's client is not set here any more.", "Set it again; pages wait."),
    "OAUTH_CLIENT_REFUSED": Remedy(
        "The provider refuses our client's id or secret.", "Set them anew ([connectors.md](connectors.md)); pages wait."
    ),
    "TOKEN_BEING_REFRESHED": Remedy("Another worker refreshes the token at present.", "Nothing to do."),
    "TOKEN_REFUSED": Remedy("The provider refused the access token; the next try refreshes it.", "Nothing to do."),
    "TOOL_FAILED": Remedy("A tool of the provider's MCP server failed.", "Look at the provider's status page."),
    "PAGE_REPEATED": Remedy("The provider names a page as its own next one.", "If it lasts, tell the provider."),
    "VAULT_KEY_UNKNOWN": Remedy(
        "No key of INTEGRATIONS_VAULT_KEYS opens a token.", "Put the key back that it was written with, at the end."
    ),
}
# Of single records, in a sync's details: the others are there.
RECORD_FAILED: Mapping[str, Remedy] = {
    "ITEM_UNREADABLE": Remedy("A record has another shape than the provider documents.", "Tell a developer."),
    "ITEM_NOT_STORED": Remedy("The database refused a record.", "Tell a developer; the log has the frames."),
    "ITEM_TOO_LARGE": Remedy("A record is larger than is stored.", "Nothing to do.", retry=False),
    "TEXT_REFUSED": Remedy("The embedding model refuses a record's text; words still find it.", "Nothing to do."),
    "FILE_NOT_GIVEN": Remedy("Drive does not let a PDF be downloaded.", "Its owner allows it there.", retry=False),
    "IMPORT_LIMIT_REACHED": Remedy(
        "So many PDFs have come from Drive today as a tenant's systems may bring.",
        "Nothing: deltas try it again. Raise IMPORTS_PER_DAY if that is every day.",
    ),
    "FILE_TOO_LARGE": Remedy("A PDF on Drive has more than MAX_FILE_BYTES.", "Nothing, or raise it.", retry=False),
    "VENDOR_UNAVAILABLE": Remedy(
        "The provider answered with a fault of its own, twice.", "Nothing: deltas try it again."
    ),
    "VENDOR_UNREACHABLE": Remedy("The provider could not be reached, twice.", "Nothing: deltas try it again."),
    "VENDOR_ANSWER_INVALID": Remedy("What the provider answered cannot be read.", "Nothing: deltas try it again."),
    "VENDOR_AWAY": Remedy(
        "The provider's breaker opened before this record's turn came.", "Nothing: deltas try it again."
    ),
    "UNAVAILABLE": Remedy("The file store was away when a PDF had come.", "Look at the store. Deltas try it again."),
}
