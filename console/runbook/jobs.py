"""Of jobs: those that are dead letters, and those that wait."""

from __future__ import annotations

from collections.abc import Mapping

from console.runbook.entry import Remedy


def _file(meaning: str, remedy: str = "Ask for a file that can be opened; a retry reads the same one.") -> Remedy:
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
