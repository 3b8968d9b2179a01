"""Error codes of chunking, embedding and search."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, ErrorCode, failure, wait_reason
from documents.error_codes import NEW_STAGE_RUN, OPENABLE_FILE
from jobs.error_codes import OUR_CONFIGURATION, OUR_FAULT, RUN_DOCTOR

MODEL_UNAVAILABLE = wait_reason(
    "MODEL_UNAVAILABLE",
    OUR_CONFIGURATION,
    _("No embedder is configured for the tenant's model."),
    RUN_DOCTOR,
    status=503,
)
MODEL_UNAVAILABLE.explain(
    Context.REQUEST,
    tenant_message=_("Search by meaning is out of order. Searching for exact words still works; tell our staff."),
)
GAVE_WAY = wait_reason(
    "GAVE_WAY",
    _("Other documents come first at the moment."),
    _("A campaign's job lets tenants' jobs go first."),
    _("Wait."),
)

NO_CHUNKS = failure(
    "NO_CHUNKS",
    _("There is no text in the document that could be searched."),
    _("The parse has no text that could be split into passages."),
    OPENABLE_FILE,
    retryable=False,
)
CHUNKS_NOT_SOUND = failure(
    "CHUNKS_NOT_SOUND", OUR_FAULT, _("The buffered passages are not those of the chunker."), NEW_STAGE_RUN
)
VECTORS_NOT_SOUND = failure(
    "VECTORS_NOT_SOUND",
    OUR_FAULT,
    _("A vector is missing or damaged."),
    _(
        "Retry: the stage runs again and buys only what is missing. If it fails once more, tell a developer: rows or"
        " objects are being changed."
    ),
)
TEXT_REFUSED = failure(
    "TEXT_REFUSED",
    _("A service that we use does not take a passage of this document. Ask our staff."),
    _("The embedding service refuses a passage."),
    _("Retry once; then choose another chunker or embedder for it."),
)
TEXT_REFUSED.explain(Context.REQUEST, tenant_message=_("The embedding service refuses this text."))

EMPTY_QUERY = ErrorCode("EMPTY_QUERY", _("Type a question or some words."), detail=_("The query is empty."))
QUERY_TOO_LONG = ErrorCode("QUERY_TOO_LONG", _("The question is too long."))
K_OUT_OF_RANGE = ErrorCode("K_OUT_OF_RANGE")
UNKNOWN_MODE = ErrorCode("UNKNOWN_MODE")
UNKNOWN_FILTER = ErrorCode("UNKNOWN_FILTER")
INVALID_FILTER = ErrorCode("INVALID_FILTER")
SEARCH_UNAVAILABLE = ErrorCode("SEARCH_UNAVAILABLE", _("Search is out of order for the moment."), status=503)

TOO_MANY_TEXTS = ErrorCode("TOO_MANY_TEXTS")
EMPTY_TEXT = ErrorCode("EMPTY_TEXT", detail=_("A text is empty."))
TEXT_TOO_LONG = ErrorCode("TEXT_TOO_LONG")
NO_MODEL_HERE = ErrorCode("NO_MODEL_HERE", status=409)
EMBEDDER_UNAVAILABLE = ErrorCode(
    "EMBEDDER_UNAVAILABLE",
    _("Search by meaning is out of order for the moment. Searching for exact words still works."),
    status=503,
)

QUERY_ERRORS = (EMPTY_QUERY, QUERY_TOO_LONG, K_OUT_OF_RANGE, UNKNOWN_MODE, UNKNOWN_FILTER, INVALID_FILTER, TEXT_REFUSED)
SEARCH_ERRORS = (*QUERY_ERRORS, SEARCH_UNAVAILABLE, MODEL_UNAVAILABLE)
EMBED_ERRORS = (TOO_MANY_TEXTS, EMPTY_TEXT, TEXT_TOO_LONG, TEXT_REFUSED, NO_MODEL_HERE, EMBEDDER_UNAVAILABLE)
