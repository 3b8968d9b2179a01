"""What each code means to support, and what to do about it: of dead letters, and of waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """``retry``: whether another try of the same file can go better once the remedy has been seen to."""

    meaning: str
    remedy: str
    retry: bool = True


def _file(
    meaning: str, remedy: str = "Ask the tenant for a file that can be opened; a retry reads the same one."
) -> Remedy:
    return Remedy(meaning, remedy, retry=False)


_AGAIN = "Retry the group."
_ONCE = "Retry once. When it comes back, look at the job's log lines by its correlation id and tell a developer."
_HEAVY = "Ask for the PDF printed anew or in parts; or raise PDF_CHILD_MEMORY_MB or PDF_CPU_SECONDS and retry."
_VENDOR = "Look at the vendor's status page. Retry the group once the vendor is well; what was bought is kept."
_ANEW = "Retry: the stage is done anew. When it comes back, tell a developer: rows or objects are being changed."

FAILED: Mapping[str, Remedy] = {
    # The file.
    "UPLOAD_EXPIRED": _file(
        "The file was declared and its bytes never came.",
        "The tenant uploads it again. Many at once: run `manage.py doctor`, uploads may not reach the store.",
    ),
    "LENGTH_MISMATCH": _file("The bytes are not as long as was declared.", "The tenant uploads the file again."),
    "HASH_MISMATCH": _file("The bytes are not those that were declared.", "The tenant uploads the file again."),
    "EMPTY_FILE": _file("The file has no bytes."),
    "NOT_A_PDF": _file("The file is not a PDF, whatever its name says."),
    "PDF_TRUNCATED": _file("The PDF is cut short.", "Ask for the whole file."),
    "PDF_MALFORMED": _file("The PDF is damaged; two engines could not open it."),
    "PASSWORD_REQUIRED": _file("The PDF needs a password.", "Ask for a copy without one."),
    "NO_PAGES": _file("The PDF has no pages."),
    "TOO_MANY_PAGES": Remedy(
        "The PDF has more pages than MAX_PAGES.", "Ask for it in parts; or raise MAX_PAGES and retry.", retry=False
    ),
    "NO_TEXT_LAYER": _file("The pages are pictures: a scan.", "The tenant uploads the same file again with OCR."),
    "NO_TEXT_FOUND": _file("OCR found no text on any page.", "Look at a page of it; ask for a better scan."),
    "NO_CHUNKS": _file("The parse has no text that could be cut into passages."),
    # Parsing.
    "PARSER_OUT_OF_MEMORY": Remedy("Parsing needs more memory than a file may have.", _HEAVY, retry=False),
    "PARSE_TIMEOUT": Remedy("Parsing did not end in the time that a file may have.", f"Retry once. {_HEAVY}"),
    "PARSER_CRASHED": Remedy("The parsing engine died on this file; nothing else was harmed.", _ONCE),
    "PARSE_FAILED": Remedy(
        "The parsing service could not parse the PDF.", "Retry once: it buys another parse. Or parse with PARSER=local."
    ),
    "PARSE_LOST": Remedy("The parsing service no longer has the result.", "Retry: it buys another parse."),
    "PARSE_FILE_GONE": Remedy("The parsing service no longer has the file.", "Retry: it is sent again."),
    "PARSE_MALFORMED": Remedy("The parse does not fit the document's pages.", _ONCE),
    "PARSE_TWIN_GONE": Remedy("A document with the same text was deleted while this one was parsed.", _AGAIN),
    "PARSE_HASH_MISMATCH": Remedy("The parsed text was changed in the store.", _ANEW),
    # Passages and vectors.
    "CHUNKS_NOT_SOUND": Remedy("The buffered passages are not those that were cut.", _ANEW),
    "VECTORS_NOT_SOUND": Remedy("A vector is missing or damaged.", f"{_ANEW} Only what is missing is bought."),
    "TEXT_REFUSED": Remedy(
        "The embedding service refuses a passage.", "Retry once; then choose another chunker or embedder for it."
    ),
    # Vendors and money.
    "VENDOR_UNAVAILABLE": Remedy("The vendor answered with a fault of its own, try after try.", _VENDOR),
    "VENDOR_UNREACHABLE": Remedy("The vendor could not be reached, try after try.", f"Check the network. {_VENDOR}"),
    "VENDOR_ANSWER_INVALID": Remedy("The vendor answered something that cannot be read.", _VENDOR),
    "VENDOR_REFUSED": Remedy(
        "The vendor is well and refuses the request.",
        "Run `manage.py doctor`; compare the vendor's settings. Then retry.",
    ),
    "BUDGET_TOO_SMALL": Remedy(
        "The document costs more than its tenant's budget of a whole day.",
        "`manage.py budget` sets another. Then retry.",
    ),
    # The machine.
    "STAGE_TIMEOUT": Remedy("The stage took longer than it may; its process was ended.", _ONCE),
    "WORKER_LOST": Remedy(
        "The worker died with the job, try after try.", "Look for kills for memory on the workers' hosts. Then retry."
    ),
    "internal": Remedy("A defect of ours.", "The frames on the job's page say where. Retry once it is mended."),
    # Ended by somebody.
    "CANCELLED": Remedy("Somebody has cancelled it.", "Nothing to do; it can be retried from its page.", retry=False),
    "SUPERSEDED": Remedy("A campaign's job that gave way to the tenant's own.", "Nothing to do.", retry=False),
    "MOVED_BY_STAFF": Remedy(
        "Support has stopped it; the audit says who and why.", "Retry when it has been looked into."
    ),
}

_KEY = "Run `manage.py doctor`: it names the setting. Jobs go on by themselves."
WAITING: Mapping[str, Remedy] = {
    "WAITING_FOR_UPLOAD": Remedy("The file's bytes have not come.", "Wait; after five minutes it is a dead letter."),
    "WAITING_FOR_PARSER": Remedy("The parsing service is at work.", "Wait; it is looked at now and then."),
    "OCR_CONTINUES": Remedy("A long scan is read a few pages at a time.", "Wait."),
    "VENDOR_AWAY": Remedy("The breaker is open: the vendor fails every call.", _VENDOR),
    "VENDOR_RATE_LIMITED": Remedy(
        "The vendor said to come back later.", "Wait; lower its requests a minute if it lasts."
    ),
    "VENDOR_BUDGET": Remedy("The calls of this minute are used up.", "Wait; raise its requests a minute if it lasts."),
    "VENDOR_QUOTA_EXHAUSTED": Remedy(
        "The vendor's account has no credit.", "Pay the vendor. Jobs go on by themselves."
    ),
    "VENDOR_REFUSES_KEY": Remedy("The vendor refuses our key.", _KEY),
    "VENDOR_MISCONFIGURED": Remedy("A vendor's settings contradict each other.", _KEY),
    "MODEL_UNAVAILABLE": Remedy("Nothing here makes vectors of the tenant's model.", _KEY),
    "CONFIGURATION": Remedy("A setting is wrong.", _KEY),
    "STORAGE_UNAVAILABLE": Remedy("The file store or the disk is full or away.", _KEY),
    "BUDGET_SPENT": Remedy("The tenant's budget of the day is spent.", "Wait for midnight UTC, or `manage.py budget`."),
    "GAVE_WAY": Remedy("A campaign's job lets tenants' jobs go first.", "Wait."),
    "STOPPING": Remedy("The worker is being stopped.", "Wait: another goes on with it."),
}
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
UNKNOWN = Remedy("A code without an entry here.", "Look at the last error's detail, and tell a developer.")


def of(code: str | None) -> Remedy:
    """Return what is known of a dead letter's code."""
    return FAILED.get(code or "", UNKNOWN)


def of_wait(reason: str | None) -> Remedy | None:
    return WAITING.get(reason or "")
