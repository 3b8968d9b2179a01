"""Response times of the staff pages with a million jobs and five million events, against a stock ModelAdmin."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.test import Client, RequestFactory

from accounts.models import User
from benchmarks import database
from benchmarks.baselines import stock_admin
from benchmarks.report import Result, percentile, print_progress
from jobs.models import UploadJob
from metrics import periodic
from metrics.models import MeasurementRun

SUMMARY = __doc__
GOAL = 300.0
STAFF = "staff@example.org"
LIST, FIND = "/admin/jobs/uploadjob/", "/admin/find/"

# The oldest first, over thirty days: a journal is written in the order of time. Of a hundred jobs 98 are done, one is
# dead, and the youngest thousandth part waits, is worked on or pauses.
SPACE = "interval '30 days' * ((%(jobs)s - i)::float8 / %(jobs)s)"
DOCUMENTS = f"""
    INSERT INTO documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path, pages, stored_at,
                           created_at)
    SELECT md5('d' || i)::uuid, md5('user' || i %% %(users)s)::uuid, 'Plan ' || i || '.pdf', 'application/pdf',
           100000 + i, i::text, 'x', 1 + i %% 9, now(), now() - {SPACE}
    FROM generate_series(1, %(jobs)s) i"""
USERS = """
    INSERT INTO users (id, username, email, password, first_name, last_name, is_active, is_staff, is_superuser,
                       date_joined)
    SELECT md5('user' || i)::uuid, 'user' || i || '@example.org', 'user' || i || '@example.org', '', '', '', true,
           false, false, now() FROM generate_series(0, %(users)s - 1) i"""
JOBS = f"""
    INSERT INTO upload_jobs (job_id, user_id, document_id, stage, state, raw_path, chunks_version, correlation_id,
                             attempts, last_error, created_at, updated_at, finished_at, run_after, claim_token,
                             claimed_at, lease_until, slot)
    SELECT md5('j' || i)::uuid, md5('user' || i %% %(users)s)::uuid, md5('d' || i)::uuid,
           CASE WHEN state = 'done' THEN 'embedded' WHEN i %% 3 = 0 THEN 'parsing' ELSE 'embedding' END, state, 'x',
           'markdown-simple@1', md5('c' || i)::uuid, 1,
           CASE WHEN state = 'deadletter' THEN jsonb_build_object('code', (ARRAY['PARSE_FAILED', 'NO_TEXT_LAYER',
               'TEXT_REFUSED', 'WORKER_LOST', 'VENDOR_REFUSED'])[1 + i %% 5], 'detail', 'It went wrong.') END,
           at, at + interval '16 s', CASE WHEN state IN ('done', 'deadletter') THEN at + interval '16 s' END,
           CASE WHEN state = 'retryable' THEN now() + interval '1 hour' END,
           CASE WHEN state = 'working' THEN md5('t' || i)::uuid END, CASE WHEN state = 'working' THEN now() END,
           CASE WHEN state = 'working' THEN now() + interval '1 hour' END, CASE WHEN state = 'working' THEN 0 END
    FROM (SELECT i, now() - {SPACE} AS at,
                 CASE WHEN i > %(jobs)s - 8 THEN 'working' WHEN i > %(jobs)s * 0.9995 THEN 'queued'
                      WHEN i > %(jobs)s * 0.999 THEN 'retryable' WHEN i %% 50 = 0 THEN 'deadletter' ELSE 'done'
                 END AS state
          FROM generate_series(1, %(jobs)s) i) seeded"""
_DONE = """
    (0.0, 'stage_started', 'info', 'UPLOAD_ACCEPTED', '{}'),
    (1.0 + i %% 7, 'stage_started', 'info', 'CLAIMED', '{"stage": "queued", "attempt": 1}'),
    (9.0 + i %% 3, 'stage_done', 'info', 'PARSE_STORED', '{"stage": "parsed", "from": "parsing", "attempt": 1}'),
    (12.0 + i %% 2, 'stage_done', 'info', 'EMBED_BUFFERED',
     '{"stage": "embeddings_buffered", "from": "embedding", "attempt": 1, "vectors": 12}'),
    (16.0, 'finalized', 'info', 'FINALIZED',
     '{"stage": "embedded", "from": "embedded", "attempt": 1, "probe_seconds": 0.004}')"""
_DEAD = """
    (0.0, 'stage_started', 'info', 'UPLOAD_ACCEPTED', '{}'),
    (1.0, 'stage_started', 'info', 'CLAIMED', '{"stage": "parsing", "attempt": 1}'),
    (3.0, 'retry', 'warn', 'RETRY_SCHEDULED',
     '{"stage": "parsing", "from": "parsing", "attempt": 1, "code": "VENDOR_UNREACHABLE"}'),
    (9.0, 'stage_started', 'info', 'CLAIMED', '{"stage": "parsing", "attempt": 2}'),
    (16.0, 'error', 'error', 'DLQ_MOVED',
     '{"stage": "parsing", "from": "parsing", "attempt": 2, "code": "PARSE_FAILED"}')"""
EVENTS = f"""
    INSERT INTO events (job_id, document_id, user_id, ts, type, severity, code, payload, correlation_id)
    SELECT md5('j' || i)::uuid, md5('d' || i)::uuid, md5('user' || i %% %(users)s)::uuid,
           now() - {SPACE} + e.seconds * interval '1 s', e.type, e.severity, e.code, e.payload::jsonb,
           md5('c' || i)::uuid
    FROM generate_series(1, %(jobs)s) i
    CROSS JOIN LATERAL (
        SELECT * FROM (VALUES {_DONE}) done (seconds, type, severity, code, payload) WHERE i %% 50 <> 0
        UNION ALL
        SELECT * FROM (VALUES {_DEAD}) dead (seconds, type, severity, code, payload) WHERE i %% 50 = 0) e"""
PURCHASES = f"""
    INSERT INTO purchases (purchase_id, user_id, document_id, job_id, stage, vendor, model, unit, quantity, cents,
                           state, created_at)
    SELECT md5('p' || i)::uuid, md5('user' || i %% %(users)s)::uuid, md5('d' || i)::uuid, md5('j' || i)::uuid,
           'embedding', 'openai', 'text-embedding-3-small', 'tokens', 5000, 0.01, 'settled', now() - {SPACE}
    FROM generate_series(1, %(jobs)s, 10) i"""
# One job in forty was retried by staff, whose codes the dead letters have.
RETRIES = f"""
    INSERT INTO audit_entries (at, actor, action, reason, object_type, object_id, tenant_id, details)
    SELECT now() - {SPACE} + interval '10 s', 'sam', CASE WHEN i %% 3 = 0 THEN 'jobs.retry_from' ELSE 'jobs.retry' END,
           'The vendor is back.', 'upload_job', md5('j' || i)::uuid, md5('user' || i %% %(users)s)::uuid,
           jsonb_build_object('from', 'parsing', 'to', 'parsing', 'code', (ARRAY['PARSE_FAILED', 'NO_TEXT_LAYER',
               'TEXT_REFUSED', 'WORKER_LOST', 'VENDOR_REFUSED'])[1 + i / 40 %% 5])
    FROM generate_series(1, %(jobs)s, 40) i"""
# One document in fifty is deleted with all that is its own, all over the tables; new events take the freed pages.
DELETED = "SELECT md5('d' || i)::uuid FROM generate_series(1, %(jobs)s) i WHERE i %% 50 = 7"
DELETE = tuple(
    f"DELETE FROM {table} WHERE document_id IN ({DELETED})" for table in ("events", "upload_jobs", "documents")
)
REFILL = """
    INSERT INTO events (job_id, document_id, user_id, type, severity, code)
    SELECT md5('j' || i)::uuid, md5('d' || i)::uuid, md5('user' || i %% %(users)s)::uuid, 'stage_started', 'info',
           'UPLOAD_DEDUP_HIT'
    FROM generate_series(1, %(jobs)s) i WHERE i %% 12 = 5 AND i %% 50 <> 7"""
TABLES = ("users", "documents", "upload_jobs", "events", "purchases", "metric_rollups", "audit_entries")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000, help="five events each")
    parser.add_argument("--rounds", type=int, default=20, help="of each page")


def measure(options: Namespace) -> Result:
    jobs, rounds = (200, 1) if options.quick else (options.jobs, options.rounds)
    seconds = {"seed": _time(lambda: seed(jobs)), "catch_up": _time(catch_up)}
    sweep = max(_time(periodic.collect_metrics) for _ in range(3))
    print_progress("seeded and measured", seconds, "a sweep", sweep)
    client = _sign_in()
    times = {name: _times(partial(_get, client, path), rounds) for name, path in pages(jobs).items()}
    times["find by a beginning"] = _times(partial(_search_names, client), rounds)
    stock_times = _times(_time_stock_admin(), max(2, rounds // 4))
    worst = max(percentile(milliseconds, 0.95) for milliseconds in times.values())
    against = percentile(stock_times, 0.95)
    return Result(
        name="admin",
        value=worst,
        unit="ms",
        against="the queries of the same list in a stock ModelAdmin, whose page is not drawn",
        ratio=against / worst,
        goal=GOAL,
        ok=worst <= GOAL,
        details={
            "jobs": jobs,
            "events": 5 * jobs,
            "p50_ms": {name: percentile(milliseconds, 0.5) for name, milliseconds in times.items()},
            "p95_ms": {name: percentile(milliseconds, 0.95) for name, milliseconds in times.items()},
            "stock_p95_ms": against,
            "sweep_seconds": sweep,
            **{f"{name}_seconds": took for name, took in seconds.items()},
        },
    )


def seed(jobs: int) -> None:
    values = {"jobs": jobs, "users": max(10, min(1_000, jobs // 100))}
    _execute(values, USERS, DOCUMENTS, JOBS, EVENTS, PURCHASES, RETRIES)
    database.analyze_tables(*TABLES)
    _execute(values, *DELETE)
    database.analyze_tables(*TABLES)
    _execute(values, REFILL)
    database.analyze_tables(*TABLES)


def _execute(values: dict[str, int], *statements: str) -> None:
    with database.connect(user="postgres") as superuser, superuser.transaction():
        # Without triggers and foreign keys: they would take longer than all the rest.
        superuser.execute("SET LOCAL session_replication_role = replica")
        for sql in statements:
            took = _time(partial(superuser.execute, sql, values))
            print_progress(" ".join(sql.split()[:3]), f"{took:.0f} s")


def catch_up() -> None:
    """Let the sweeps run until nothing is left to count."""
    while True:
        periodic.collect_metrics()
        upto = MeasurementRun.objects.get(pk=periodic.MOVES).counted_until
        print_progress("counted up to", upto)
        if upto and not periodic.is_behind():
            break
    database.analyze_tables("metric_rollups")


def pages(jobs: int) -> dict[str, str]:
    """Return what is looked at, by name."""
    some = UploadJob.objects.order_by("-created_at")[min(1_000, jobs // 2)]
    dead = UploadJob.objects.filter(state="deadletter").order_by("-finished_at").first() or some
    return {
        **{f"dashboard {period}": f"/admin/?period={period}" for period in ("1h", "24h", "7d", "30d")},
        "jobs": LIST,
        "jobs dead": f"{LIST}?state=deadletter",
        "jobs done": f"{LIST}?state=done",
        "jobs by status": f"{LIST}?status=failed_embedding",
        "jobs by code": f"{LIST}?error_code=NO_TEXT_LAYER",
        "jobs at a stage": f"{LIST}?stage=parsing",
        "jobs of a pipeline": f"{LIST}?pipeline=insurance",
        "jobs of campaigns": f"{LIST}?pipeline=reembed",
        "jobs starved": f"{LIST}?standing=starved",
        "jobs page 2": f"{LIST}?p=2",
        "jobs by id": f"{LIST}?q={some.pk}",
        "events": "/admin/jobs/event/",
        "dead letters": "/admin/dead-letters/",
        "job": f"/admin/jobs/{some.pk}/",
        "dead job": f"/admin/jobs/{dead.pk}/",
        "tenant": f"/admin/tenants/{some.user_id}/",
        "status": "/admin/status/",
        "find an e-mail": f"{FIND}?q={User.objects.get(pk=some.user_id).email}",
        "find a file": f"{FIND}?q={some.document.filename}",
        "find no file": f"{FIND}?q=nothing.pdf",
        "find a request": f"{FIND}?q={some.correlation_id}",
        "find a document": f"{FIND}?q={some.document_id}",
        "find no id": f"{FIND}?q={UUID(int=1)}",
        "metrics": "/metrics",
    }


def _sign_in() -> Client:
    user = User.objects.create_superuser(STAFF, STAFF, "not used", pk=UUID(int=7))
    client = Client()
    client.force_login(user)
    return client


def _get(client: Client, path: str) -> None:
    answer = client.get(path)
    if answer.status_code not in (200, 302):  # a search leads to a page
        raise RuntimeError(f"{path} answered {answer.status_code}")


def _search_names(client: Client) -> None:
    form = urlencode({"q": "plan 12", "reason": "A benchmark"})
    answer = client.post(f"{FIND}beginnings/", form, content_type="application/x-www-form-urlencoded")
    if b"Plan 12" not in answer.content:
        raise RuntimeError("Nothing was found by its beginning.")


def _time_stock_admin() -> Callable[[], None]:
    site = admin.AdminSite("stock")
    view = stock_admin.JobAdmin(UploadJob, site).changelist_view
    user = User.objects.get(email=STAFF)

    def look() -> None:
        request: Any = RequestFactory().get(LIST)
        request.user = user
        answer: Any = view(request)
        len(answer.context_data["cl"].result_list)  # what its queries take: the page is not even drawn

    return look


def _times(look: Callable[[], None], rounds: int) -> list[float]:
    look()  # once for templates and caches
    return [1000 * _time(look) for _ in range(rounds)]


def _time(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
