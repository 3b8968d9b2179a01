"""What tenants are told, in plain words: why a document waits, why it failed, why a file was refused."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from integrations.disconnect import GrantOutcome
from integrations.models import Provider

# By the job's ``wait_reason``: nothing is wrong with the document, and it goes on by itself.
WAITING = {
    "WAITING_FOR_UPLOAD": "The file has not arrived yet.",
    "WAITING_FOR_PARSER": "The pages are being read; this takes a minute or two.",
    "OCR_CONTINUES": "The scanned pages are being read, a few at a time.",
    "VENDOR_AWAY": "A service that we use is out of order. Your document goes on by itself when it is back.",
    "VENDOR_RATE_LIMITED": "A service that we use is busy. Your document goes on by itself in a moment.",
    "VENDOR_BUDGET": "Many documents are being worked on. Yours goes on by itself in a moment.",
    "VENDOR_QUOTA_EXHAUSTED": "A service that we use does not take our requests. Our staff must see to it first.",
    "VENDOR_REFUSES_KEY": "A service that we use does not take our requests. Our staff must see to it first.",
    "VENDOR_MISCONFIGURED": "Something is set up wrongly on our side. Our staff must see to it first.",
    "MODEL_UNAVAILABLE": "Something is set up wrongly on our side. Our staff must see to it first.",
    "CONFIGURATION": "Something is set up wrongly on our side. Our staff must see to it first.",
    "BUDGET_SPENT": "Today's budget of your account is used up. Your document goes on after midnight (UTC).",
    "STORAGE_UNAVAILABLE": "Our file store is out of order. Your document goes on by itself when it is back.",
    "GAVE_WAY": "Other documents come first at the moment.",
    "STOPPING": "Our service is being restarted. Your document goes on by itself.",
}
WAITS = "It goes on by itself."


@dataclass(frozen=True, slots=True)
class Failure:
    """``again``: whether trying once more may help; ``ocr``: whether reading the pages as a scan may."""

    sentence: str
    again: bool = True
    ocr: bool = False


_OURS = "Something went wrong on our side. Try again; if it fails once more, ask our staff."
_THEIRS = "A service that we use could not do its work. Try again later."
_READER = "The service that reads PDFs could not read this one. Try again."
_DAMAGED = "This PDF is damaged. Make it anew, for instance by printing it to a PDF, and upload that file."
_OTHER_FILE = "What arrived is not the file that you chose. Upload it again."
_TOO_HEAVY = "This PDF is too complicated for us to read. Upload it in parts, or print it to a new PDF."

# By the code of the job's ``last_error``.
FAILED = {
    "UPLOAD_EXPIRED": Failure("The file never arrived. Choose it again above.", again=False),
    "LENGTH_MISMATCH": Failure(_OTHER_FILE, again=False),
    "HASH_MISMATCH": Failure(_OTHER_FILE, again=False),
    "EMPTY_FILE": Failure("The file is empty.", again=False),
    "NOT_A_PDF": Failure("The file is not a PDF, whatever its name says.", again=False),
    "PDF_TRUNCATED": Failure("The PDF is cut short. Upload the whole file.", again=False),
    "PDF_MALFORMED": Failure(_DAMAGED, again=False),
    "PASSWORD_REQUIRED": Failure("The PDF needs a password. Upload it without one.", again=False),
    "NO_PAGES": Failure("The PDF has no pages.", again=False),
    "TOO_MANY_PAGES": Failure("The PDF has more pages than we take. Upload it in parts.", again=False),
    "NO_TEXT_LAYER": Failure(
        "The pages are pictures without text, as of a scan. They can be read as a scan.", again=False, ocr=True
    ),
    "NO_TEXT_FOUND": Failure("We found no text on any page.", again=False),
    "NO_CHUNKS": Failure("There is no text in the document that could be searched.", again=False),
    "PARSER_OUT_OF_MEMORY": Failure(_TOO_HEAVY, again=False),
    "PARSE_TIMEOUT": Failure("Reading this PDF took too long. Try again, or upload it in parts."),
    "PARSER_CRASHED": Failure(_READER),
    "PARSE_FAILED": Failure(_READER),
    "PARSE_LOST": Failure(_READER),
    "PARSE_MALFORMED": Failure(_READER),
    "PARSE_FILE_GONE": Failure(_READER),
    "PARSE_TWIN_GONE": Failure(_OURS),
    "PARSE_HASH_MISMATCH": Failure("The text that we read was damaged. Try again: it is read anew."),
    "VENDOR_REFUSED": Failure(_THEIRS),
    "VENDOR_UNAVAILABLE": Failure(_THEIRS),
    "VENDOR_UNREACHABLE": Failure(_THEIRS),
    "VENDOR_ANSWER_INVALID": Failure(_THEIRS),
    "TEXT_REFUSED": Failure("A service that we use does not take a passage of this document. Ask our staff."),
    "BUDGET_TOO_SMALL": Failure("The document costs more than your account may spend in a day. Ask our staff."),
    "CHUNKS_NOT_SOUND": Failure(_OURS),
    "VECTORS_NOT_SOUND": Failure(_OURS),
    "STAGE_TIMEOUT": Failure("This took longer than it may. Try again."),
    "WORKER_LOST": Failure(_OURS),
    "CANCELLED": Failure("Somebody stopped the work on this document. Try again if you still want it."),
    "MOVED_BY_STAFF": Failure("Our staff stopped the work on this document to look into it."),
    "SUPERSEDED": Failure("Newer work on this document took the place of this."),
    "internal": Failure(_OURS),
}
FAILS = Failure(_OURS)

# By the code of a refusal, where a tenant's page says more than the API's own sentence. Followed by when to come back.
REFUSED = {
    "UNSUPPORTED_TYPE": "This is not a PDF.",
    "NOT_A_PDF": "This is not a PDF, whatever its name says.",
    "EMPTY_FILE": "The file is empty.",
    "FILE_TOO_LARGE": "The file is too large.",
    "FILENAME_TOO_LONG": "The file's name is too long. Give it a shorter one.",
    "INVALID_FILENAME": "The file needs a name.",
    "UPLOAD_LIMIT_REACHED": "You have uploaded as much as you may for now.",
    "LOOK_LIMIT_REACHED": "You have looked at as many pages as you may for now.",
    "SEARCH_LIMIT_REACHED": "You have asked as many questions as you may for now.",
    "BUDGET_SPENT": "Your account's budget is used up for now.",
    "NOT_AUTHENTICATED": "You are signed out. Load this page again and sign in.",
    "INVALID_TOKEN": "You are signed out. Load this page again and sign in.",
    "FORBIDDEN": "This page was open for too long. Load it again.",
    "URL_EXPIRED": "The upload took too long. Try again.",
    "URL_NOT_VALID": "The upload was refused. Try again.",
    "LENGTH_MISMATCH": "The file changed while it was being uploaded. Choose it again.",
    "HASH_MISMATCH": "The file changed while it was being uploaded. Choose it again.",
    "NOT_FOUND": "The document was deleted meanwhile. Choose the file again.",
    "JOB_ALREADY_ACTIVE": "This document is being worked on already.",
    "JOB_STATE_CHANGED": "Something has changed meanwhile. Look again.",
    "JOB_DONE": "This document is ready; there is nothing to try again.",
    "NOT_READY": "The document has not come that far yet.",
    "STORAGE_UNAVAILABLE": "Our file store cannot be reached.",
    "INSUFFICIENT_STORAGE": "There is no room for the file at the moment.",
    "UNAVAILABLE": "Our service cannot be reached.",
    "SEARCH_UNAVAILABLE": "Search is out of order for the moment.",
    "EMBEDDER_UNAVAILABLE": "Search by meaning is out of order for the moment. Searching for exact words still works.",
    "MODEL_UNAVAILABLE": "Search by meaning is out of order. Searching for exact words still works; tell our staff.",
    "EMPTY_QUERY": "Type a question or some words.",
    "QUERY_TOO_LONG": "The question is too long.",
    "PROVIDER_NOT_CONFIGURED": "This system is not set up here yet. Ask our staff.",
    "PROVIDER_UNREACHABLE": "The other system cannot be reached at present, so nothing was connected. Begin again.",
    "STATE_MISMATCH": "Connecting was not begun here, or took too long. Begin again.",
    "CONSENT_REFUSED": "You did not allow us to read your records there, so nothing was connected.",
    "SYNC_ALREADY_ACTIVE": "Its records are being fetched already.",
    "SOURCE_NOT_ACTIVE": "It is not connected any more. Reconnect it first.",
    # What only a browser finds out, before or after it has asked.
    "UNREADABLE": "The file cannot be read. Was it moved or deleted?",
    "INSECURE": "This page was not loaded over HTTPS, so the browser cannot check your files. Use the https address.",
    "UNREACHABLE": "The connection broke off. Check it and try again.",
    "REFUSED_BY_STORE": "The file store refused the upload. Try again; if it fails once more, tell our staff.",
}

# How a connected system stands, and by the code of its source or of its last sync what the tenant can do about it.
CONNECTIONS = {
    "syncing": "Fetching.",
    "ready": "Connected.",
    "waiting": "Connected.",
    "failed": "The last sync failed.",
    "broken": "Not connected any more.",
    "leaving": "Being removed.",
}
# While its records are being fetched, and nothing comes.
BEGINS = "It begins in a moment."
QUEUES = "It waits for its turn."
SILENT = "{name} does not answer at present; it goes on by itself."
# By what became of a disconnected system's access, where it was not given back.
GRANTS = {
    GrantOutcome.SHARED: "Google still lists our access: something else that is connected here with this Google"
    " account uses it. It is given back when that is disconnected, too.",
    GrantOutcome.NOT_REVOKED: "{name} could not be told. Remove our app in its own settings, too.",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """``reconnect``: whether consenting once more mends it."""

    sentence: str
    reconnect: bool = False


_CONNECT_ANEW = Trouble("{name} does not let us in any more. Reconnect it.", reconnect=True)
_GOES = Trouble("It was disconnected.")
SYNC_FAILED = {
    "refresh_token_invalid": _CONNECT_ANEW,
    "REFRESH_TOKEN_INVALID": _CONNECT_ANEW,
    "SOURCE_NOT_ACTIVE": _CONNECT_ANEW,
    "VAULT_TOKEN_MISPLACED": _CONNECT_ANEW,
    "SCOPES_MISSING": Trouble(
        "{name} does not let us read all that we need. Reconnect it, and allow everything that is asked for.",
        reconnect=True,
    ),
    "VENDOR_REFUSED": Trouble("{name} refuses what we ask for. Reconnect it, or ask our staff.", reconnect=True),
    "CAPABILITY_MISSING": Trouble("{name} does not offer what we need to read your records. Ask our staff."),
    "CURSOR_EXPIRED": Trouble("Too much changed at {name} while we read it. Sync again."),
    "BUDGET_TOO_SMALL": Trouble("A record costs more than your account may spend in a day. Ask our staff."),
    "max_retries_exceeded": Trouble("It broke off too often. Sync again later; if it fails once more, ask our staff."),
    "MESSAGE_MALFORMED": Trouble("It lost its place. Sync again."),
    "SYNC_STOPPED": Trouble("Our staff stopped it. Sync again, or ask our staff why."),
    "DISCONNECTED": _GOES,
    "SOURCE_DISCONNECTED": _GOES,
}
SYNC_FAILS = Trouble("Something went wrong on our side. Sync again; if it fails once more, ask our staff.")


def trouble(code: str | None, provider: str, *, is_broken: bool = False) -> Trouble:
    """Return what to tell of a sync's or a source's code; of a source that is broken, reconnecting is the way.

    A refused token's code is followed by the provider's own word for it, which is not told.
    """
    named = (code or "").partition(":")[0]
    found = SYNC_FAILED.get(named, _CONNECT_ANEW if is_broken else SYNC_FAILS)
    return Trouble(found.sentence.format(name=Provider(provider).label), found.reconnect or is_broken)


HEADLINES = {
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.NOT_FOUND: "There is no such page",
    HTTPStatus.TOO_MANY_REQUESTS: "Too much at once",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something went wrong",
    HTTPStatus.SERVICE_UNAVAILABLE: "Out of order for a moment",
}


def headline(status: int) -> str:
    return HEADLINES.get(HTTPStatus(status), "This did not work")


def pause(seconds: float) -> str:
    """Say when to come back: "in 40 seconds", "in 3 hours"."""
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds > 1.5 * length:
            return f"in {round(seconds / length)} {unit}s"
    return f"in {max(1, round(seconds))} second{'s' if round(seconds) > 1 else ''}"


def refusal(code: str, detail: str, retry_after: float | None) -> str:
    """Return the sentence of a refusal; ``detail`` is what the service itself says."""
    said = REFUSED.get(code, detail)
    return f"{said} Come back {pause(retry_after)}." if retry_after else said
