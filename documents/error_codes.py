"""Error codes of uploads, parsing and stored files."""

from functools import partial

from django.conf import settings
from django.utils.functional import lazy
from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, ErrorCode, failure, staff_error, wait_reason
from jobs.error_codes import OUR_FAULT, RETRY_ONCE

OPENABLE_FILE = _("Ask for a file that can be opened; a retry reads the same one.")
UPLOAD_AGAIN = _("The tenant uploads the file again.")
OTHER_FILE = _("What arrived is not the file that you chose. Upload it again.")
READER_FAILED = _("The service that reads PDFs could not read this one. Try again.")
NEW_STAGE_RUN = _(
    "Retry: the stage runs again. If it fails once more, tell a developer: rows or objects are being changed."
)

WAITING_FOR_UPLOAD = wait_reason(
    "WAITING_FOR_UPLOAD",
    _("The file has not arrived yet."),
    _("The file's bytes have not arrived."),
    _("Wait; after five minutes it is a dead letter."),
)
WAITING_FOR_PARSER = wait_reason(
    "WAITING_FOR_PARSER",
    _("The pages are being read; this takes a minute or two."),
    _("The parsing service is at work."),
    _("Wait; it is polled."),
)
OCR_CONTINUES = wait_reason(
    "OCR_CONTINUES",
    _("The scanned pages are being read, a few at a time."),
    _("A long scan is read a few pages at a time."),
    _("Wait."),
)

# The file
file_failure = partial(failure, retryable=False)
UPLOAD_EXPIRED = file_failure(
    "UPLOAD_EXPIRED",
    _("The file never arrived. Choose it again above."),
    _("The file was declared and its bytes never arrived."),
    _("The tenant uploads it again. Many at once: run `manage.py doctor`, uploads may not reach the store."),
    detail=_("The file was never uploaded; ask for a new URL."),
)
LENGTH_MISMATCH = file_failure(
    "LENGTH_MISMATCH",
    OTHER_FILE,
    _("The number of bytes is not the declared one."),
    UPLOAD_AGAIN,
    status=422,
    detail=_("The file is not as long as was declared."),
)
HASH_MISMATCH = file_failure(
    "HASH_MISMATCH",
    OTHER_FILE,
    _("The bytes are not the declared ones."),
    UPLOAD_AGAIN,
    status=422,
    detail=_("The file is not the one whose sha256 was declared."),
)
EMPTY_FILE = file_failure("EMPTY_FILE", _("The file is empty."), remedy=OPENABLE_FILE)
NOT_A_PDF = file_failure("NOT_A_PDF", _("The file is not a PDF."), remedy=OPENABLE_FILE)
for code in (LENGTH_MISMATCH, HASH_MISMATCH, EMPTY_FILE, NOT_A_PDF):
    code.explain(Context.REQUEST)
PDF_TRUNCATED = file_failure(
    "PDF_TRUNCATED",
    _("The PDF is cut short. Upload the whole file."),
    _("The PDF is cut short."),
    _("Ask for the whole file."),
)
PDF_MALFORMED = file_failure(
    "PDF_MALFORMED",
    _("This PDF is damaged. Create it again, for instance by printing it to a PDF, and upload that file."),
    _("The PDF is damaged; two engines could not open it."),
    OPENABLE_FILE,
)
PASSWORD_REQUIRED = file_failure(
    "PASSWORD_REQUIRED",
    _("The PDF needs a password. Upload it without one."),
    _("The PDF needs a password."),
    _("Ask for a copy without one."),
)
NO_PAGES = file_failure("NO_PAGES", _("The PDF has no pages."), remedy=OPENABLE_FILE)
TOO_LONG = _("The PDF has more than {} pages, which is the most. Upload it in parts.")
TOO_MANY_PAGES = file_failure(
    "TOO_MANY_PAGES",
    lazy(lambda: TOO_LONG.format(settings.MAX_PAGES), str)(),
    _("The PDF has more pages than MAX_PAGES."),
    _("Ask for it in parts; or raise MAX_PAGES and retry."),
)
NO_TEXT_LAYER = file_failure(
    "NO_TEXT_LAYER",
    _("The pages have no text that can be read, only images of it, as in a scan. They can be read as a scan."),
    _("The pages are images, a scan, or their text is garbage: fonts without Unicode, a wrong encoding."),
    _("The tenant chooses “Read as a scan” beside the document, or uploads the same file again with OCR."),
)
NO_TEXT_FOUND = file_failure(
    "NO_TEXT_FOUND",
    _("We found no text on any page."),
    _("OCR found no text on any page."),
    _("Look at a page of it; ask for a better scan."),
)

# Parsing
PARSER_OUT_OF_MEMORY = file_failure(
    "PARSER_OUT_OF_MEMORY",
    _("This PDF is too complicated for us to read. Upload it in parts, or print it to a new PDF."),
    _("Parsing exceeds the memory limit of a file."),
    _("Ask for the PDF printed again or in parts; or raise PDF_CHILD_MEMORY_MB or PDF_CPU_SECONDS and retry."),
)
PARSE_TIMEOUT = failure(
    "PARSE_TIMEOUT",
    _("Reading this PDF took too long. Try again, or upload it in parts."),
    _("Parsing exceeded the time limit of a file."),
    _(
        "Retry once. Then ask for the PDF printed again or in parts; or raise PDF_CPU_SECONDS or"
        " PARSE_SECONDS_MOST and retry."
    ),
)
PARSER_CRASHED = failure(
    "PARSER_CRASHED",
    READER_FAILED,
    _("The parsing engine crashed on this file; nothing else was affected."),
    RETRY_ONCE,
)
PARSE_FAILED = failure(
    "PARSE_FAILED",
    READER_FAILED,
    _("The parsing service could not parse the PDF."),
    _("Retry once: it buys another parse. Or parse with PARSER=local."),
)
PARSE_LOST = failure(
    "PARSE_LOST", READER_FAILED, _("The parsing service no longer has the result."), _("Retry: it buys another parse.")
)
PARSE_FILE_GONE = failure(
    "PARSE_FILE_GONE", READER_FAILED, _("The parsing service no longer has the file."), _("Retry: it is sent again.")
)
PARSE_MALFORMED = failure(
    "PARSE_MALFORMED", READER_FAILED, _("The parse does not fit the document's pages."), RETRY_ONCE
)
PARSE_TWIN_GONE = failure(
    "PARSE_TWIN_GONE",
    OUR_FAULT,
    _("A document with the same text was deleted while this one was parsed."),
    _("Retry the group."),
    detail=_("The document that had the same text was deleted; it is stored again."),
)
PARSE_HASH_MISMATCH = failure(
    "PARSE_HASH_MISMATCH",
    _("The text that we read was damaged. Try again: it is read again."),
    _("The parsed text was changed in the store."),
    NEW_STAGE_RUN,
    detail=_("The parsed text was changed in the store; retrying parses it again."),
)

# Requests
INVALID_SHA256 = ErrorCode("INVALID_SHA256")
INVALID_FILENAME = ErrorCode("INVALID_FILENAME", _("The file needs a name."))
FILENAME_TOO_LONG = ErrorCode("FILENAME_TOO_LONG", _("The file's name is too long. Give it a shorter one."))
FILE_TOO_LARGE = ErrorCode("FILE_TOO_LARGE", _("The file is too large."), status=413)
UNSUPPORTED_TYPE = ErrorCode("UNSUPPORTED_TYPE", _("This is not a PDF."), status=415)
TYPE_MISMATCH = ErrorCode("TYPE_MISMATCH", status=415)
LENGTH_REQUIRED = ErrorCode("LENGTH_REQUIRED", status=411, detail=_("Send Content-Length."))
UPLOAD_INTERRUPTED = ErrorCode("UPLOAD_INTERRUPTED", detail=_("The upload broke off; nothing of it was kept."))
URL_EXPIRED = ErrorCode(
    "URL_EXPIRED",
    _("The upload took too long. Try again."),
    status=403,
    detail=_("This URL has expired; ask for a new one."),
)
URL_NOT_VALID = ErrorCode(
    "URL_NOT_VALID", _("The upload was refused. Try again."), status=403, detail=_("This URL was not signed for that.")
)
UPLOAD_INVALID = (EMPTY_FILE, INVALID_SHA256, INVALID_FILENAME, FILENAME_TOO_LONG, FILE_TOO_LARGE, UNSUPPORTED_TYPE)
INVALID_TAG_NAME = ErrorCode("INVALID_TAG_NAME", _("A tag needs a name of 1 to 40 characters."))
TAG_NAME_TAKEN = ErrorCode("TAG_NAME_TAKEN", _("Another tag has this name already."), status=409)
TAG_LIMIT_REACHED = ErrorCode("TAG_LIMIT_REACHED", _("You have 200 tags, which is the most. Delete one."), status=409)
TOO_MANY_TAGS = ErrorCode("TOO_MANY_TAGS", _("A document can have 20 tags. Remove one first."), status=409)
UNKNOWN_TAG = ErrorCode("UNKNOWN_TAG", _("There is no such tag; it may have been deleted meanwhile."))
DOWNLOAD_TOO_LARGE = ErrorCode(
    "DOWNLOAD_TOO_LARGE", status=413, detail=_("These files are too large for one download. Choose fewer.")
)
NOT_READY = ErrorCode("NOT_READY", _("The document is not ready yet."), status=409)
PAGE_NOT_FOUND = ErrorCode("PAGE_NOT_FOUND", status=404, detail=_("The document has no such page."))
PAGE_NOT_SHOWN = ErrorCode("PAGE_NOT_SHOWN", status=422, detail=_("This page cannot be shown."))
INSUFFICIENT_STORAGE = ErrorCode("INSUFFICIENT_STORAGE", _("There is no room for the file at the moment."), status=507)

# Callbacks of the parsing service
VENDOR_ERROR = _("Tell the vendor; the stored parse stays.")
CALLBACK_CONTRADICTS = staff_error(
    "CALLBACK_CONTRADICTS",
    _("The content differs from what was delivered before."),
    VENDOR_ERROR,
    status=409,
    context=Context.CALLBACK,
)
ARTIFACT_EMPTY = staff_error(
    "ARTIFACT_EMPTY", _("The artifact has no text."), VENDOR_ERROR, status=422, context=Context.CALLBACK
)
JOB_NOT_PARSING = staff_error(
    "JOB_NOT_PARSING",
    _("Content arrived for a job that does not wait for any."),
    _("Nothing to do."),
    status=409,
    detail=_("The job does not wait for a parse."),
    context=Context.CALLBACK,
)
