"""State machine of jobs: the table of moves, the SQL of a move, and events. Nothing else writes ``stage`` and ``state``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import structlog
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from accounts import prepared_statements
from accounts.prepared_statements import Row
from jobs import telemetry
from jobs.choices import ACTIVE, State
from jobs.models import Event, UploadJob
from jobs.webhook_events import insert_events

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.events")

QUEUED, WORKING, RETRYABLE, DONE, DEADLETTER = State

Severity = Literal["info", "warn", "error"]

WOKEN = "WOKEN"  # the wait reason of a working job that must not wait: what it waits for has come

# The fence: locks the row if the claim still has it.
_OURS = "FROM upload_jobs WHERE job_id = %(job_id)s AND claim_token = %(held)s"
LOCK_CLAIM = f"SELECT job_id {_OURS} FOR UPDATE"
# The same if the job is at the stage still: stages are not saved again whose commit was made and its answer lost.
LOCK_CLAIM_AT_STAGE = f"SELECT job_id {_OURS} AND stage = %(first)s FOR UPDATE"
# The same as the first for a transaction that commits asynchronously.
LOCK_CLAIM_NO_FSYNC = f"SELECT job_id, set_config('synchronous_commit', 'off', true) {_OURS} FOR UPDATE"
# The same for several claims at once.
LOCK_CLAIMS = """
    SELECT u.job_id FROM upload_jobs u JOIN unnest(%(jobs)s::uuid[], %(tokens)s::uuid[]) c (job_id, token)
        ON u.job_id = c.job_id AND u.claim_token = c.token
    ORDER BY u.job_id FOR UPDATE OF u"""
# The first without the lock.
CHECK_CLAIM = f"SELECT job_id {_OURS}"

_FREE = "claim_token = NULL, lease_until = NULL, slot = NULL, in_batch = false"
_UNPARKED = "run_after = NULL, wait_reason = NULL"
_FRESH = "attempts = 0, retry_count = 0, overloads = 0, finished_at = NULL, last_error = NULL, traceback = NULL"
_STAGED = (
    "stage = %(stage)s, retry_count = 0, last_error = NULL, traceback = NULL,"
    " total_pct = greatest(u.total_pct, %(total_pct)s)"
)


@dataclass(frozen=True, slots=True)
class Move:
    """A transition: its source states, its target, the columns it sets, and the event written with it."""

    sources: Sequence[State]
    target: State
    sets: str
    type: str
    severity: Severity
    code: str


# fmt: off
MOVES: Mapping[str, Move] = {
    #                 from          to          sets
    "claim":   Move([QUEUED],       WORKING,    "claim_token = gen_random_uuid(), claimed_by = %(worker)s, claimed_at = clock_timestamp(),"
                                                " lease_until = clock_timestamp() + %(lease)s, slot = p.slot, in_batch = p.in_batch, wait_reason = NULL,"
                                                " overloaded = false, started_at = coalesce(u.started_at, clock_timestamp()), attempts = u.attempts + 1",
                                                "stage_started", "info", "CLAIMED"),
    "advance": Move([WORKING],      WORKING,    f"{_STAGED}, attempts = 1, in_batch = false",
                                                "stage_done", "info", "STAGE_DONE"),
    "finish":  Move([WORKING],      DONE,       f"{_FREE}, finished_at = clock_timestamp(), total_pct = 100, retry_count = 0,"
                                                " last_error = NULL, traceback = NULL",
                                                "finalized", "info", "FINALIZED"),
    # A wait and a release cost no attempt: the claim's count is taken back. A job that was woken meanwhile is due at once.
    "wait":    Move([WORKING],      QUEUED,     f"{_FREE}, attempts = greatest(u.attempts - 1, 0), wait_reason = %(reason)s, run_after ="
                                                f" CASE WHEN u.wait_reason = '{WOKEN}' THEN NULL ELSE clock_timestamp() + %(pause)s END",
                                                "stage_started", "info", "WAITING"),
    "release": Move([WORKING],      QUEUED,     f"{_FREE}, attempts = greatest(u.attempts - 1, 0)",
                                                "stage_started", "info", "RELEASED"),
    # The plan changed while the job ran: it returns to the stage that makes the plan.
    "rewind":  Move([WORKING],      QUEUED,     f"stage = %(stage)s, {_FREE}, attempts = 0, retry_count = 0,"
                                                " last_error = NULL, traceback = NULL",
                                                "stage_started", "info", "REWOUND"),
    "retry":   Move([WORKING],      RETRYABLE,  f"{_FREE}, retry_count = u.attempts, last_error = %(error)s, traceback = %(traceback)s,"
                                                " run_after = clock_timestamp() + %(pause)s",
                                                "retry", "warn", "RETRY_SCHEDULED"),
    "expire":  Move([WORKING],      QUEUED,     f"{_FREE}, retry_count = u.attempts, last_error = %(error)s",
                                                "retry", "warn", "LEASE_EXPIRED"),
    # Instead of an expiry while the machine was too busy for the job: a release, counted for the whole job.
    "overload": Move([WORKING],     QUEUED,     f"{_FREE}, attempts = greatest(u.attempts - 1, 0), overloads = u.overloads + 1",
                                                "stage_started", "warn", "OVERLOADED"),
    # Instead of an expiry when the claim was one of a batch: whose code ran is not known. The next claim is no batch.
    "disband": Move([WORKING],      QUEUED,     f"{_FREE}, attempts = greatest(u.attempts - 1, 0), overloads = u.overloads + 1",
                                                "stage_started", "warn", "BATCH_LOST"),
    "discard": Move([WORKING],      DEADLETTER, f"{_FREE}, finished_at = clock_timestamp(), last_error = %(error)s, traceback = %(traceback)s",
                                                "error", "error", "DLQ_MOVED"),
    "due":     Move([QUEUED, RETRYABLE], QUEUED, _UNPARKED,
                                                "stage_started", "info", "DUE"),
    "push":    Move([QUEUED, RETRYABLE], QUEUED, f"{_STAGED}, {_UNPARKED}, attempts = 0",
                                                "stage_done", "info", "ADVANCED"),
    # What the job waits for has come from outside: a worker that polls for it loses the claim, and writes nothing.
    "deliver": Move(ACTIVE,         QUEUED,     f"{_STAGED}, {_FREE}, {_UNPARKED}, attempts = 0",
                                                "stage_done", "info", "DELIVERED"),
    "cancel":  Move(ACTIVE,         DEADLETTER, f"{_FREE}, {_UNPARKED}, finished_at = clock_timestamp(), last_error = %(error)s",
                                                "error", "warn", "CANCELLED"),
    "requeue": Move([DEADLETTER],   QUEUED,     f"stage = %(stage)s, {_FRESH}, {_UNPARKED}",
                                                "retry", "info", "REQUEUED"),
}
# fmt: on

# Moves that the webhooks of the job's tenant hear of. Tenants do not see the jobs of campaigns.
WEBHOOK_EVENTS = {"finish": "document.completed", "discard": "document.failed", "cancel": "document.failed"}
_EVENT_DATA = """jsonb_build_object('document_id', s.document_id, 'job_id', s.job_id, 'stage', s.stage,
                   'state', s.state, 'status', s.status, 'code', s.last_error ->> 'code')"""

# The columns that a handler may set along with its move; a closed set, because the names go into the statement.
PLAN_FIELDS = frozenset({"parsed_path", "parsed_sha256", "chunks_version", "embed_model", "embed_version"})
MERGED_FIELDS = frozenset({"payload", "progress"})
HANDLER_FIELDS = PLAN_FIELDS | MERGED_FIELDS | {"cost_cents"}
_JSON = MERGED_FIELDS | {"last_error"}


INSERT_JOB = """
    WITH inserted AS (
        INSERT INTO upload_jobs ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING {all_columns}
    ), logged AS (
        INSERT INTO events (job_id, document_id, user_id, ts, type, severity, code, payload, correlation_id)
        SELECT job_id, document_id, user_id, clock_timestamp(), 'stage_started', 'info', 'UPLOAD_ACCEPTED', '{{}}',
               correlation_id FROM inserted
    ) SELECT * FROM inserted"""


_EVENT_OF_MOVE = """
        SELECT m.job_id, m.document_id, m.user_id, clock_timestamp(), '{type}', '{severity}',
               coalesce(%({name}_code)s::text, '{code}'),
               jsonb_build_object('stage', m.stage, 'attempt', m.attempts) || %({name}_event)s::jsonb, m.correlation_id
        FROM {name}_moved m"""
# The same with an event for each job, by its id.
EVENTS_OF_JOBS = _EVENT_OF_MOVE.replace("%({name}_event)s::jsonb", "(%({name}_events)s::jsonb -> m.job_id::text)")
# Stages that are committed together: each event has the time at which its stage ended.
_EVENTS_OF_STAGES = """
        SELECT m.job_id, m.document_id, m.user_id, clock_timestamp() - make_interval(secs => (e ->> 'age')::float8),
               '{type}', '{severity}', coalesce(e ->> 'code', '{code}'), e -> 'payload', m.correlation_id
        FROM {name}_moved m, jsonb_array_elements(%({name}_events)s::jsonb) e"""


def move_ctes(name: str, pick: str, *, fields: Sequence[str] = (), events: str = _EVENT_OF_MOVE) -> str:
    """Return the CTEs of a move: lock the rows that ``pick`` selects, update them, write an event and webhooks for each.

    ``pick`` selects ``job_id`` (and ``slot`` for a claim) and locks its rows. Rows that are no longer in a source state
    of the move stay as they are. ``{name}_moved`` has the updated rows.
    """
    move = MOVES[name]
    source = "u.state IN ({})".format(", ".join(f"'{state}'" for state in sorted(move.sources)))
    if name == "claim":  # by no index of states: very many jobs may be queued, whatever the statistics say
        source = f"({source}) IS TRUE"
    sets = ", ".join([f"state = '{move.target}'", move.sets, *set_clauses(fields)])
    return f"""
    {name}_picked AS MATERIALIZED ({pick}),
    {name}_moved AS (
        UPDATE upload_jobs u SET {sets}, updated_at = clock_timestamp()
        FROM {name}_picked p WHERE u.job_id = p.job_id AND {source}
        RETURNING u.*
    ),
    {name}_logged AS (
        INSERT INTO events (job_id, document_id, user_id, ts, type, severity, code, payload, correlation_id)
        {events.format(name=name, type=move.type, severity=move.severity, code=move.code)}
    ){_published_cte(name)}"""


def _published_cte(name: str) -> str:
    if name not in WEBHOOK_EVENTS:
        return ""
    subjects = f"(SELECT * FROM {name}_moved WHERE campaign_id IS NULL) s"
    return f""",
    {name}_published AS ({insert_events(f"'{WEBHOOK_EVENTS[name]}'", _EVENT_DATA, subjects)}
    )"""


def make_move(
    name: str,
    pick: str,
    *,
    code: str | None = None,
    event: Mapping[str, Any] | None = None,
    by_job: Mapping[str, Mapping[str, Any]] | None = None,
    fields: Mapping[str, Any] | None = None,
    durable: bool = True,
    **params: Any,
) -> list[Row]:
    """Make a move and set ``fields``; return the moved rows. ``code`` and ``event``, or that ``by_job``, go to the event.

    ``durable=False`` sets ``synchronous_commit=off`` in the statement, so that it ends with the statement's commit.
    """
    fields = fields or {}
    async_commit = "" if durable else ", set_config('synchronous_commit', 'off', true)"
    events = {f"{name}_code": code, f"{name}_event": dict(event or {}), f"{name}_events": by_job}
    ctes = move_ctes(name, pick, fields=list(fields), events=EVENTS_OF_JOBS if by_job else _EVENT_OF_MOVE)
    sql = f"WITH {ctes} SELECT *{async_commit} FROM {name}_moved"
    return execute(sql, {**params, **fields, **events})


def insert_job(columns: Mapping[str, Any]) -> UploadJob | None:
    """Insert a queued job and its first event; return None if the document has an active job."""
    names = sorted(columns)
    all_columns = ", ".join(field.column for field in UploadJob._meta.concrete_fields)
    values = ", ".join(f"%({name})s" for name in names)
    sql = INSERT_JOB.format(columns=", ".join(names), values=values, all_columns=all_columns)
    rows = execute(sql, columns)
    if not rows:
        return None
    job = load_job(rows[0])
    log.info("UPLOAD_ACCEPTED", **telemetry.job_fields(job))
    return job


def advance_stages(
    pick: str, events: Sequence[Mapping[str, Any]], *, fields: Mapping[str, Any], durable: bool = True, **params: Any
) -> list[Row]:
    """Make the moves "advance" of consecutive stages at once; ``events`` have ``code``, ``age`` in seconds, ``payload``.

    ``params`` are the claim, the ``first`` stage, and those of the last; ``fields`` are the merged ones of all.
    """
    async_commit = "" if durable else ", set_config('synchronous_commit', 'off', true)"
    ctes = move_ctes("advance", pick, fields=list(fields), events=_EVENTS_OF_STAGES)
    sql = f"WITH {ctes} SELECT *{async_commit} FROM advance_moved"
    return execute(sql, {**params, **fields, "advance_events": Jsonb(list(events))})


def set_clauses(fields: Sequence[str]) -> list[str]:
    """Return the SET clauses of a handler's fields. Costs are added, JSON is merged. Raises ``ValueError``."""
    if unknown := set(fields) - HANDLER_FIELDS:
        raise ValueError(f"A move cannot set {sorted(unknown)}.")
    operators = {"cost_cents": "u.cost_cents + "} | {field: f"u.{field} || " for field in MERGED_FIELDS}
    return [f"{field} = {operators.get(field, '')}%({field})s" for field in sorted(fields)]


def execute(sql: str, params: Mapping[str, Any]) -> list[Row]:
    """Run a prepared statement. Dicts are passed as jsonb."""
    adapted = {name: Jsonb(value) if isinstance(value, dict) else value for name, value in params.items()}
    return prepared_statements.execute(sql, adapted)


def load_job(row: Row) -> UploadJob:
    """Return the job of a row as the database has it, ``status`` included; columns that the row lacks are deferred."""
    parsed = {name: json.loads(row[name]) for name in _JSON & row.keys() if row[name] is not None}
    return prepared_statements.load(UploadJob, row | parsed)


# MVP context §7: the event codes that every deployment emits.
EVENT_CODES = (
    "UPLOAD_DEDUP_HIT",
    "UPLOAD_ACCEPTED",
    "PARSE_REQUESTED",
    "PARSE_STORED",
    "PARSE_HASH_MISMATCH",
    "CHUNK_BUFFERED",
    "CHUNK_COMMITTED",
    "EMBED_BUFFERED",
    "EMBED_COMMITTED",
    "EMBED_INDEX_TIMEOUT",
    "RETRY_SCHEDULED",
    "DLQ_MOVED",
)


def log_event(
    job: UploadJob,
    code: str,
    type: str = Event.Type.STAGE_DONE,
    severity: str = Event.Severity.INFO,
    payload: Mapping[str, Any] | None = None,
    *,
    age: float = 0.0,
) -> None:
    """Write an event of a job that happened ``age`` seconds ago, in the caller's transaction.

    ``payload`` has ids and codes only, no text or paths.
    """
    subject: dict[str, Any] = {
        name: getattr(job, name) for name in ("job_id", "document_id", "user_id", "correlation_id")
    }
    if age:
        subject["ts"] = Now() - timedelta(seconds=age)
    Event.objects.create(**subject, type=type, severity=severity, code=code, payload=dict(payload or {}))
    stage = (payload or {}).get("stage")
    log.info(code, **telemetry.job_fields(job), **({"stage": stage} if stage else {}))
