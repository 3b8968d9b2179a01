"""Stages, states and statuses of jobs, as the specs spell them."""

from django.db.models import Case, Q, TextChoices, TextField, Value, When


class Stage(TextChoices):
    QUEUED = "queued"
    JOB_VALIDATED = "job_validated"
    PARSING = "parsing"
    PARSED = "parsed"
    PARSE_VALIDATED = "parse_validated"
    CHUNKING = "chunking"
    CHUNKS_BUFFERED = "chunks_buffered"
    CHUNKED = "chunked"
    EMBEDDING = "embedding"
    EMBEDDINGS_BUFFERED = "embeddings_buffered"
    EMBEDDED = "embedded"


class State(TextChoices):
    QUEUED = "queued"
    WORKING = "working"
    RETRYABLE = "retryable"
    DONE = "done"
    DEADLETTER = "deadletter"


ACTIVE = (State.QUEUED, State.WORKING, State.RETRYABLE)
# Codes of dead letters that were cancelled and have not failed.
CANCELLED_CODES = ("SUPERSEDED", "CANCELLED")

# Context 002's single status, derived from stage and state (DESIGN §3).
FAILED_STATUSES = {
    "failed_parse": (Stage.QUEUED, Stage.JOB_VALIDATED, Stage.PARSING, Stage.PARSED),
    "failed_chunking": (Stage.PARSE_VALIDATED, Stage.CHUNKING, Stage.CHUNKS_BUFFERED),
    "failed_embedding": (Stage.CHUNKED, Stage.EMBEDDING, Stage.EMBEDDINGS_BUFFERED, Stage.EMBEDDED),
}
STAGE_STATUSES = {
    "uploaded": (Stage.QUEUED,),
    "parse_queued": (Stage.JOB_VALIDATED, Stage.PARSING),
    "parsed": (Stage.PARSED,),
    "parse_validated": (Stage.PARSE_VALIDATED,),
    "chunking": (Stage.CHUNKING,),
    "chunks_stored": (Stage.CHUNKS_BUFFERED, Stage.CHUNKED),
    "embedding_queued": (Stage.EMBEDDING,),
    "embeddings_stored": (Stage.EMBEDDINGS_BUFFERED, Stage.EMBEDDED),
}
STATUSES = ("embedding_in_progress", "complete", *STAGE_STATUSES, *FAILED_STATUSES)


def _in(stages: tuple[Stage, ...], **more: str) -> Q:
    return Q(stage__in=[stage.value for stage in stages], **more)


def status_expression() -> Case:
    dead = [When(_in(stages, state="deadletter"), then=Value(name)) for name, stages in FAILED_STATUSES.items()]
    shown = [When(_in(stages), then=Value(name)) for name, stages in STAGE_STATUSES.items()]
    busy = When(stage="embedding", state="working", then=Value("embedding_in_progress"))
    return Case(*dead, When(state="done", then=Value("complete")), busy, *shown, output_field=TextField())
