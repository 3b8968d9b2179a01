"""The words of the schema that belong to no single view."""

INTRODUCTION = """\
Insurance PDFs as searchable, cited passages.

Declare a file (`POST /upload`), put its bytes to the URL that it answers, watch its job (`GET /jobs`), then
ask (`POST /search`).

**Who calls.** `Authorization: Bearer …` with a Supabase JWT or an API token; or the session of somebody who
has signed in here, whose writing calls bring the CSRF token in `X-CSRFToken`. What belongs to another tenant
answers like what does not exist: 404.

**Refusals** have one shape: a stable `code`, a `detail` for people, the `field` where there is one. The codes
of each operation are listed with it; any operation may answer 405 `METHOD_NOT_ALLOWED` and 500 `INTERNAL` in
the same shape. What fails later stands in a job's `last_error`.

**Lists** are paged by cursor: follow `next`. **`X-Correlation-ID`** of a request is kept, and answered;
without one it is made.
"""

COMPONENTS = {
    "UploadRequest": "A file, before its bytes.",
    "UploadResponse": "Where to put the bytes, and the ids under which they will be found.",
    "JobAnswer": "A job: the fields of MVP context §6.",
    "CountedJobAnswer": "A job with its counters, its one status, and why it is not moving.",
    "FailureAnswer": "Why a job failed, or its last try.",
    "DocumentResponse": "A document of the caller's.",
    "SavedResponse": "What was not bought, because its text had a vector already.",
    "LinkResponse": "A URL of a file, for as many seconds.",
    "ChunkAnswer": "A passage. `meta` says where it stands.",
    "PlaceAnswer": "Where a passage stands. `header` are the offsets of the table header that is repeated before it.",
    "SearchRequest": "A question, and what to look among.",
    "FiltersRequest": "Narrow what is ranked, not what was found.",
    "RecordAnswer": "A record of a connected system, or what is known of a client.",
    "PassageAnswer": "A passage that answers, with what cites it.",
    "LawAnswer": "A passage of a law that answers, with what cites it. Laws are everybody's.",
    "ArticleAnswer": "An article of a law.",
    "UsageResponse": "Cents, by day and month (UTC).",
    "PurchaseResponse": "One paid call.",
}
