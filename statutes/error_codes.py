"""Error codes of statutes: jobs, the SQS consumer, its messages, ``ingest_vectors``, commands and the admin.

No tenant sees a statute's job: these codes have messages for staff only. A code of another app that a statute's job
fails with has another remedy here, because staff can replace the file themselves.
"""

from functools import partial

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, error_codes, staff_error
from documents import error_codes as documents
from embeddings import error_codes as embeddings
from jobs.outcomes import Permanent, StageFailure

failure = partial(staff_error, context=Context.STATUTE_FAILURE)
file_failure = partial(failure, retryable=False)
wait_reason = partial(staff_error, context=Context.STATUTE_WAIT)
consumer_wait = partial(staff_error, context=Context.CONSUMER_WAIT)
message_error = partial(staff_error, context=Context.SQS_MESSAGE)
log_code = partial(staff_error, context=Context.LOG)
manifest_error = partial(staff_error, context=Context.MANIFEST)

NOTHING = _("Nothing to do.")
REPLACE_FILE = _("Put another file under its key and send its message again.")
SPLIT_FILE = _("Split the statute into several files, each as a statute of its own.")
SPLIT_OR_RAISE = _("Raise the limit and retry, or split the statute into several files.")
RETRY_OR_REPLACE = _("Retry once. If it fails again, tell a developer; meanwhile put another file under its key.")
CORRECT_SENDER = _("Correct the sender.")
UPLOAD_AGAIN = _("Upload the statute again: its message with `force_reprocess`.")
REPEAT_LATER = _("Repeat it later.")

# Files in the raw bucket
RAW_FILE_MISSING = failure(
    "RAW_FILE_MISSING", _("There is no file under the message's key."), _("Put it there; send it again."), status=404
)
RAW_FILE_MISSING.explain(Context.REQUEST, staff_message=_("There is no file under the key."), remedy=_("Put it there."))
RAW_BUCKET_CLOSED = failure(
    "RAW_BUCKET_CLOSED",
    _("The bucket that the message names does not exist, cannot be read, or is not in STATUTES_RAW_BUCKETS."),
    _("Let the worker's role read it, or correct the message. Then retry, or run `manage.py laws redrive --yes`."),
)
RAW_FILE_CLOSED = failure(
    "RAW_FILE_CLOSED",
    _("The store refuses this file but not others: it is archived, denied, not scanned yet, or we may not decrypt it."),
    _("Restore it, or grant access (kms:Decrypt). Then retry, or run `manage.py laws redrive --yes`."),
)
RAW_FILE_INFECTED = file_failure(
    "RAW_FILE_INFECTED", _("The bucket's malware scanner has found a threat in the file."), REPLACE_FILE
)
RAW_FILE_TAGS_DIFFER = file_failure(
    "RAW_FILE_TAGS_DIFFER", _("The tags document_id or version contradict the message."), _("Correct either.")
)

# File formats
UNKNOWN_FORMAT = file_failure("UNKNOWN_FORMAT", _("The file is neither PDF nor DOCX nor XML."), REPLACE_FILE)
OLD_OR_LOCKED_WORD = file_failure(
    "OLD_OR_LOCKED_WORD", _("It is an old Word document (.doc) or needs a password."), _("Save it as DOCX.")
)
NOT_XML = file_failure("NOT_XML", _("The file is not well-formed XML."), REPLACE_FILE)
XML_ENTITY_REFUSED = file_failure(
    "XML_ENTITY_REFUSED",
    _("The XML declares or uses entities: these are neither expanded nor fetched."),
    _("Ask its publisher for XML without a DOCTYPE of its own, or resolve the entities before the upload."),
)
XML_TOO_DEEP = file_failure("XML_TOO_DEEP", _("The XML's elements are nested too deeply."), REPLACE_FILE)
XML_TOO_LARGE = file_failure("XML_TOO_LARGE", _("The XML has more elements than are read."), SPLIT_FILE)
NOT_DOCX = file_failure("NOT_DOCX", _("The file is a ZIP archive and not a DOCX."), REPLACE_FILE)
DOCX_TRUNCATED = file_failure("DOCX_TRUNCATED", _("The Word document is damaged or cut short."), REPLACE_FILE)
DOCX_TOO_LARGE = file_failure("DOCX_TOO_LARGE", _("The Word document unpacks to more than is read."), SPLIT_FILE)
DOCX_ENCRYPTED = file_failure("DOCX_ENCRYPTED", _("The Word document is encrypted."), _("Save it without a password."))

# Contents
NO_TEXT = file_failure("NO_TEXT", _("The file has no text."), REPLACE_FILE)
TOO_MANY_ARTICLES = file_failure(
    "TOO_MANY_ARTICLES", _("The statute has more than 30,000 articles and divisions."), SPLIT_FILE
)
NO_ARTICLES = file_failure("NO_ARTICLES", _("No article or section was found: it may be no statute."), REPLACE_FILE)
LAW_SCHEMA_INVALID = file_failure(
    "LAW_SCHEMA_INVALID", _("The parsed statute does not match schemas/law.schema.json."), _("A bug: tell a developer.")
)
LAW_UNKNOWN = failure(
    "LAW_UNKNOWN", _("The version's row is missing: rows were deleted by hand."), _("Send its message again.")
)
for code, message, remedy in (
    (documents.EMPTY_FILE, _("The statute's file is empty."), REPLACE_FILE),
    (documents.FILE_TOO_LARGE, _("The statute's file is larger than STATUTES_MAX_BYTES."), SPLIT_OR_RAISE),
    (documents.NOT_A_PDF, _("The statute's file is not a PDF, whatever its name."), REPLACE_FILE),
    (documents.PDF_TRUNCATED, _("The statute's PDF is cut short."), REPLACE_FILE),
    (documents.PDF_MALFORMED, _("The statute's PDF is damaged; two engines could not open it."), REPLACE_FILE),
    (documents.PASSWORD_REQUIRED, _("The statute's PDF needs a password."), _("Remove it and send its message again.")),
    (documents.NO_PAGES, _("The statute's PDF has no pages."), REPLACE_FILE),
    (documents.TOO_MANY_PAGES, _("The statute's PDF has more pages than MAX_PAGES."), SPLIT_OR_RAISE),
    (documents.NO_TEXT_LAYER, _("The statute's pages are images: a scan."), _("Run OCR and send its message again.")),
    (documents.NO_TEXT_FOUND, _("OCR found no text on any page of the statute."), _("Replace it by a better scan.")),
    (documents.PARSER_OUT_OF_MEMORY, _("The file needs more memory than reading is allowed."), SPLIT_FILE),
    (embeddings.NO_CHUNKS, _("The statute has no text that could be split into passages."), REPLACE_FILE),
):
    code.explain(Context.STATUTE_FAILURE, staff_message=message, remedy=remedy, retryable=False)
for code, message, remedy in (
    (documents.PARSE_TIMEOUT, _("The file needs more time than reading is allowed."), _("Retry once. Then split it.")),
    (documents.PARSER_CRASHED, _("The reader stopped unexpectedly on this file."), RETRY_OR_REPLACE),
    (
        embeddings.TEXT_REFUSED,
        _("The embedding model refuses every passage of the statute; if it refuses some, it is partial_failed."),
        _("Retry once; then set another STATUTES_EMBEDDER."),
    ),
):
    code.explain(Context.STATUTE_FAILURE, staff_message=message, remedy=remedy)


def statute_failure(code: str, kind: type[StageFailure] = Permanent) -> StageFailure:
    """Return the failure of a statute's file, with the message for staff."""
    declared = error_codes(Context.STATUTE_FAILURE)[code]
    return kind(declared, str(declared.meaning))


# Waits
MORE_URGENT_LAW = wait_reason(
    "MORE_URGENT_LAW", _("Statutes of a higher priority come first."), _("Wait, at most 15 minutes.")
)
LAW_BUSY = wait_reason("LAW_BUSY", _("Another worker is uploading this statute."), _("Wait."), status=409)
LAW_BUSY.explain(Context.REQUEST, staff_message=_("The statute is being published."), remedy=REPEAT_LATER)
LAW_BUSY.explain(Context.MANIFEST, staff_message=_("A worker has this statute at present."), remedy=REPEAT_LATER)
LAMBDA_REFUSED = wait_reason(
    "LAMBDA_REFUSED",
    _("STATUTES_LAMBDA does not exist, or we may not invoke it. The artifacts are uploaded."),
    _("Correct its name or the role's lambda:InvokeFunction. Jobs continue by themselves."),
)
SQS_NO_QUEUE = consumer_wait(
    "SQS_NO_QUEUE", _("There is no queue at SQS_QUEUE_URL."), _("Create it, or correct the URL or SQS_REGION.")
)
DATABASE_AWAY = consumer_wait(
    "DATABASE_AWAY", _("The database does not respond."), _("Look at PostgreSQL. Messages that are held stay held.")
)

# Messages that no later delivery can mend
MESSAGE_TOO_LARGE = message_error("MESSAGE_TOO_LARGE", _("The body has more than 1 MiB."), _("Do not send the file."))
MESSAGE_NOT_JSON = message_error("MESSAGE_NOT_JSON", _("The body is not a JSON object."), CORRECT_SENDER)
MESSAGE_AMBIGUOUS = message_error(
    "MESSAGE_AMBIGUOUS", _("A name occurs twice, or the message has two shapes at once."), CORRECT_SENDER
)
MESSAGE_CONTROL_CHARACTER = message_error(
    "MESSAGE_CONTROL_CHARACTER", _("A field has a control character or half a character."), CORRECT_SENDER
)
MESSAGE_INVALID = message_error(
    "MESSAGE_INVALID",
    _("A field is missing or does not match schemas/statute.message.json."),
    _("Correct the sender; the log line names the field."),
)
MESSAGE_INVALID.explain(
    Context.REQUEST,
    staff_message=_("The statute's id or version has characters that a message may not have."),
    remedy=_("Choose another id."),
)
MESSAGE_KEY_UNUSABLE = message_error(
    "MESSAGE_KEY_UNUSABLE",
    _("S3 announces a key from which no statute's id can be made."),
    _("Use letters, digits, `_` and `-` in its names, and `.pdf`, `.docx` or `.xml`; or send a message of its own."),
)
MESSAGE_BUCKET_REFUSED = message_error(
    "MESSAGE_BUCKET_REFUSED",
    _("The message names a bucket that is neither STATUTES_BUCKET nor in STATUTES_RAW_BUCKETS."),
    _("Correct the sender. Or add the bucket, if all tenants may read it, and run `manage.py laws redrive --yes`."),
)
MESSAGE_BUCKET_REFUSED.explain(
    Context.REQUEST,
    staff_message=_("`laws send --bucket` names a bucket that is not in `STATUTES_RAW_BUCKETS`."),
    remedy=_("Put the file into `STATUTES_BUCKET`, or add the bucket there."),
)
MESSAGE_UNREADABLE = message_error(
    "MESSAGE_UNREADABLE",
    _("A bug: the line `A message cannot be read.` has its traceback."),
    _("Tell a developer; once it is fixed, `manage.py laws redrive --yes`."),
)

# ``manage.py ingest_vectors`` rejects a statute and changes nothing of it
MANIFEST_MISSING = manifest_error(
    "MANIFEST_MISSING", _("There is no manifest of this statute."), _("Correct the id, the bucket or the folder.")
)
MANIFEST_INVALID = manifest_error(
    "MANIFEST_INVALID", _("The manifest is not one of ours, or belongs to another statute."), UPLOAD_AGAIN
)
VECTORS_TOO_WIDE = manifest_error(
    "VECTORS_TOO_WIDE", _("The vectors are not 1536 wide."), _("Vectors of another model cannot be searched here.")
)
OTHER_MODEL = manifest_error(
    "OTHER_MODEL", _("Statutes here have another model."), _("Set the same STATUTES_EMBEDDER and TITAN_MODEL.")
)
OUTDATED = manifest_error("OUTDATED", _("A newer version of the statute is searched here."), NOTHING)
STORE_AWAY = manifest_error(
    "STORE_AWAY", _("The bucket or the folder cannot be read."), _("Look at the store, or the role's s3:GetObject.")
)
documents.HASH_MISMATCH.explain(
    Context.MANIFEST,
    staff_message=_("An object is not the one that the manifest names."),
    remedy=_(
        "Repeat it: a newer version was being uploaded. If it fails again, send its message with `force_reprocess`."
    ),
)
embeddings.VECTORS_NOT_SOUND.explain(
    Context.MANIFEST, staff_message=_("Passages and vectors do not match, or a vector is zero."), remedy=UPLOAD_AGAIN
)

# Commands and the admin
LAW_OUTDATED = staff_error("LAW_OUTDATED", _("A newer version of the statute is searched."), NOTHING, status=409)
LAW_FILE_UNKNOWN = staff_error(
    "LAW_FILE_UNKNOWN",
    _("The version came by `ingest_vectors`: its raw file is not known."),
    _("Run `manage.py laws send KEY --law LAW --version VERSION --force`."),
    status=409,
)

# Log lines, events and the admin
SQS_NO_DLQ = log_code(
    "SQS_NO_DLQ",
    _("The queue has no redrive policy: failed messages return until they expire."),
    _("Give it one ([statutes.md](statutes.md))."),
)
SQS_FEW_RECEIVES = log_code(
    "SQS_FEW_RECEIVES", _("The queue's maxReceiveCount is 2."), _("Set it to 3, 4 or 5; with 1 no consumer starts.")
)
SQS_MESSAGE_LOST = log_code(
    "SQS_MESSAGE_LOST",
    _("A message was handed to another consumer while we held it."),
    _("Nothing: the work is done once. If it happens often, raise SQS_VISIBILITY_SECONDS."),
)
SQS_HELD_TOO_LONG = log_code(
    "SQS_HELD_TOO_LONG",
    _("A message was held for 12 hours, the maximum of SQS."),
    _("Nothing; its job continues. Look at what the job waits for."),
)
LAW_INCOMPLETE = log_code(
    "LAW_INCOMPLETE",
    _("A statute stays `partial_failed`: the model refuses some passages on every attempt."),
    _("Change the text or STATUTES_EMBEDDER; then send its message with `force_reprocess`."),
)
LAW_OUTDATED.explain(Context.LOG, staff_message=_("On a version: a newer one was ready first."), remedy=NOTHING)
LAW_WITHDRAWN = log_code(
    "LAW_WITHDRAWN",
    _("On a version while a statute is withdrawn; it stays if the bucket could not be reached."),
    _("Run `manage.py laws withdraw LAW` once more."),
)
LAW_FOUND = log_code(
    "LAW_FOUND", _("On `REWOUND`: the version is live, so it is processed again in a second document."), NOTHING
)
LAW_UNCHANGED = log_code(
    "LAW_UNCHANGED", _("On `PARSE_STORED`: the file has the same text as the live version, which is kept."), NOTHING
)
