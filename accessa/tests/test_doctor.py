"""Doctor: each planted misconfiguration is reported with its remedy; a sound deployment is all green."""

import errno
import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import jwt
import pytest
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test import override_settings

from accessa import config_digest
from accessa.checks.active_models import check_embedding_models
from accessa.doctor import http_probe
from accessa.doctor.findings import Finding, Level, note
from accessa.doctor.registry import CHECKS
from accessa.doctor.runner import Check, run_checks
from accessa.management.commands import doctor
from accessa.management.commands.doctor import NAMES
from accessa.observability.redaction import secrets_pattern
from accessa.tests.doctor_fixtures import OtherDeployment, has_finding, reports, run_findings, spoil_json, temporary_sql
from documents.tests.s3_settings import use_s3_storage
from embeddings.models import ActiveModel
from jobs.cluster import live_clusters
from jobs.models import Cluster
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.openai import OpenAIServer
from testing.fakes.s3 import S3Server
from webhooks.tests.signers import RETIRED, SECRET

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = "https://app.example.org"
SLOW = "ocr"  # 4 s, which the demo takes
PATIENT = [replace(check, timeout=120.0) for check in CHECKS]


@pytest.fixture(scope="module")
def strict() -> Iterator[S3Server]:
    with S3Server(strict=True) as server:
        yield server


@pytest.fixture(scope="module")
def lenient() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def llamaparse(settings: Any) -> Iterator[LlamaParseServer]:
    with LlamaParseServer() as server:
        settings.PARSER, settings.LLAMAPARSE_API_KEY = "llamaparse", server.key
        settings.LLAMAPARSE_BASE_URL = server.url
        yield server


@pytest.fixture
def openai(settings: Any) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        settings.EMBEDDER, settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "openai", server.key, server.url
        yield server


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine be late, not wrong."""
    monkeypatch.setattr(http_probe, "TIMEOUT", 60.0)
    monkeypatch.setattr(doctor, "CHECKS", PATIENT)


@pytest.fixture
def api(live_server: Any, settings: Any, store: None) -> None:
    settings.PUBLIC_URL = live_server.url
    settings.LLAMAPARSE_CALLBACK_URL = f"{live_server.url}/webhooks/llamaparse"
    settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET, RETIRED]


def rows() -> dict[str, int]:
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in tables))
        return dict(cursor.fetchall())


# All is well


@pytest.mark.slow
def test_a_working_deployment_passes_and_keeps_no_probe(
    api: None, llamaparse: LlamaParseServer, openai: OpenAIServer, strict: S3Server, settings: Any
) -> None:
    use_s3_storage(settings, strict)
    settings.STORAGE, settings.S3_ENCRYPTION = "s3", "bucket-default"
    settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
    live_clusters.record_heartbeat()
    before, out = rows(), io.StringIO()

    with suppress(SystemExit):  # the verdicts say why
        call_command("doctor", "--json", "--skip", SLOW, stdout=out)

    verdicts = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [each for each in verdicts if each["level"] not in ("ok", "skipped")] == []
    assert [each["check"] for each in verdicts] == [name for name in NAMES if name != SLOW]
    assert {each["check"] for each in verdicts if each["level"] == "skipped"} == {
        "replica", "signers", "titan", "statutes-queue", "statutes-bucket",
    }  # fmt: skip
    assert rows() == before
    assert [list(storages[name].names()) for name in ("raw", "parsed")] == [[], []]  # type: ignore[attr-defined]
    assert (openai.ledger.summary()["sold"], llamaparse.ledger.summary()["sold"]) == (1, 0)
    assert openai.ledger.summary()["tokens"] == 1


def test_without_vendors_all_is_green_too(api: None, settings: Any) -> None:
    live_clusters.record_heartbeat()

    levels = {verdict.name: verdict.level for verdict in run_checks(PATIENT, skip=[SLOW])}

    assert {name for name, level in levels.items() if level in (Level.ERROR, Level.WARNING)} == set()


def test_it_exits_1_for_a_fault_and_names_its_remedy() -> None:
    out = io.StringIO()

    with pytest.raises(SystemExit) as leaving:
        call_command("doctor", "--only", "workers", stdout=out)

    assert leaving.value.code == 1
    assert "FAIL  workers" in out.getvalue()
    assert "-> Start one: manage.py qcluster" in out.getvalue()
    assert "1 check failed, 0 warnings." in out.getvalue()


# How checks are run


def hang() -> Iterator[Finding]:
    time.sleep(60)
    yield note("never")


def break_() -> Iterator[Finding]:
    raise RuntimeError("what it says may be a secret")


def lose_the_database() -> Iterator[Finding]:
    raise OperationalError("connection failed: FATAL: could not write init file")


def test_a_check_that_hangs_or_breaks_leaves_the_others_alone() -> None:
    checks = [
        Check("hangs", "", hang, timeout=0.1, timeout_remedy="look at the firewall"),
        Check("breaks", "", break_),
        Check("loses", "", lose_the_database),
        Check("needs", "", hang, needs=("hangs",)),
        Check("needs the needing", "", hang, needs=("needs",)),
        Check("works", "It works.", lambda: []),
    ]

    verdicts = {verdict.name: verdict for verdict in run_checks(checks)}

    assert [verdict.level.value for verdict in verdicts.values()] == [
        "error", "error", "error", "skipped", "skipped", "ok",
    ]  # fmt: skip
    assert verdicts["hangs"].findings[0].remedy == "look at the firewall"
    assert verdicts["breaks"].findings[0].message == "It broke: RuntimeError."
    assert verdicts["loses"].findings[0].message == "The database did not serve this check: OperationalError."
    assert verdicts["needs"].findings[0].message == "needs hangs"


SECRETS = (
    "SECRET_KEY", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_SESSION_TOKEN", "SUPABASE_ANON_KEY",
    "SUPABASE_SERVICE_ROLE", "SUPABASE_JWT_SECRET", "LLAMAPARSE_API_KEY", "OPENAI_API_KEY", "BRAIN_API_SECRET",
    "METRICS_TOKEN", "SENTRY_DSN",
)  # fmt: skip


@pytest.fixture
def secrets(settings: Any) -> Iterator[list[str]]:
    """All secrets that a deployment may have."""
    named = {name: f"secret-{uuid4()}" for name in SECRETS}
    for name, secret in named.items():
        setattr(settings, name, secret)
    lists = [f"secret-{uuid4()}" for _ in range(2)]
    settings.LLAMAPARSE_WEBHOOK_SECRETS, settings.SECRET_KEY_FALLBACKS = lists[:1], lists[1:]
    password = f"secret-{uuid4()}"
    broker = f"redis://us:{password}@redis.example:6379/1"
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "redis": broker}
    secrets_pattern.cache_clear()
    yield [*named.values(), *lists, password, broker]
    secrets_pattern.cache_clear()


def test_no_secret_is_ever_printed(secrets: list[str]) -> None:
    def tells() -> Iterator[Finding]:
        for secret in secrets:
            yield Finding(Level.ERROR, f"It is {secret}.", f"Change {secret}.")

    (verdict,) = run_checks([Check("tells", "", tells)])

    assert {(found.message, found.remedy) for found in verdict.findings} == {("It is ….", "Change ….")}


# The database


TENANTS = [
    (
        "ALTER TABLE documents DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE documents ENABLE ROW LEVEL SECURITY",
        "Row-level security is not enabled on documents.",
        "ALTER TABLE documents ENABLE",
    ),
    (
        "ALTER TABLE events NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE events FORCE ROW LEVEL SECURITY",
        "Row-level security is not forced on events.",
        "ALTER TABLE events FORCE",
    ),
    (
        "CREATE POLICY everybody ON documents FOR SELECT TO accessa_client USING (true)",
        "DROP POLICY everybody ON documents",
        "A tenant sees another tenant's document.",
        "Stop the API.",
    ),
    (
        "REVOKE SELECT ON documents FROM accessa_client",
        "GRANT SELECT ON documents TO accessa_client",
        "A tenant does not see its own document.",
        "GRANT SELECT ON documents",
    ),
    (
        "GRANT UPDATE ON documents TO accessa_client",
        "REVOKE UPDATE ON documents FROM accessa_client",
        "Tenants' role may write documents.",
        "REVOKE INSERT, UPDATE",
    ),
    (
        "CREATE VIEW leak AS SELECT * FROM documents; GRANT SELECT ON leak TO accessa_client",
        "DROP VIEW leak",
        "Tenants read the view leak past the policies.",
        "security_invoker",
    ),
]


@pytest.mark.parametrize(("do", "undo", "says", "remedy"), TENANTS)
def test_tenants_that_are_not_kept_apart_are_found(do: str, undo: str, says: str, remedy: str) -> None:
    with temporary_sql(do, undo):
        assert reports("tenants", says, remedy)

    assert not reports("tenants", "", "")


def test_migrations_that_are_missing_or_ahead_are_found() -> None:
    of_jobs = "app = 'jobs' AND name = '0002_policies'"
    insert = "INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '{}', now())"
    with temporary_sql(f"DELETE FROM django_migrations WHERE {of_jobs}", insert.format("0002_policies")):
        assert reports("migrations", "not applied, jobs.0002_policies first.", "manage.py migrate")

    with temporary_sql(insert.format("9999_later"), "DELETE FROM django_migrations WHERE name = '9999_later'"):
        assert reports("migrations", "it has jobs.9999_later", "Deploy the version that was migrated")


def test_autovacuum_that_was_switched_off_is_found() -> None:
    do, undo = (
        "ALTER TABLE upload_jobs SET (autovacuum_enabled = false)",
        "ALTER TABLE upload_jobs RESET (autovacuum_enabled)",
    )
    with temporary_sql(do, undo):
        assert reports("limits", "Autovacuum is off for upload_jobs", "RESET (autovacuum_enabled)")


def test_an_unreachable_database_is_reported_once_and_other_checks_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "USER", "nobody")

    verdicts = {verdict.name: verdict for verdict in run_checks(CHECKS, only=["database", "broker", "pdf"])}

    assert "cannot be reached: the database or the role does not exist." in verdicts["database"].findings[0].message
    assert verdicts["database"].findings[0].remedy == "Start it, or correct DATABASE_URL."
    assert [verdicts[name].level.value for name in ("broker", "pdf")] == ["skipped", "ok"]


# The workers


def test_a_missing_worker_is_found() -> None:
    assert reports("workers", "No worker is alive", "manage.py qcluster")


DIFFERENT = [
    ({"S3_RAW_BUCKET": "another"}, "another S3_RAW_BUCKET.", "the same environment"),
    ({"OPENAI_API_KEY": "sk-of-another-project"}, "another OPENAI_API_KEY.", "the same environment"),
    ({"STORAGE_ROOT": "/tmp"}, "another STORAGE_ROOT, the disk of STORAGE_ROOT.", "the same environment"),
    ({"SECRET_KEY": "another"}, "have another SECRET_KEY.", "one SECRET_KEY"),
]


@pytest.mark.parametrize(("changed", "says", "remedy"), DIFFERENT)
def test_workers_of_another_configuration_are_found(
    changed: dict[str, str], says: str, remedy: str, store: None, settings: Any
) -> None:
    settings.STORAGE_ROOT.mkdir(parents=True)
    with override_settings(**changed):
        live_clusters.record_heartbeat()

    assert reports("likeness", says, remedy)


def test_an_empty_store_has_the_same_digest(settings: Any, tmp_path: Path) -> None:
    settings.STORAGE_ROOT = tmp_path / "not there yet"
    before = config_digest.compute_digests()

    (settings.STORAGE_ROOT / "raw").mkdir(parents=True)

    assert config_digest.compute_digests() == before


def test_workers_on_another_machine_than_the_files_are_found() -> None:
    live_clusters.record_heartbeat()
    own = Cluster.objects.get()
    Cluster.objects.create(name="elsewhere:7", workers=2, fingerprint=own.fingerprint)

    assert reports("likeness", "there are 2 machines: elsewhere,", "Set up a bucket")


# The addresses


def test_a_public_url_of_another_port_is_found(settings: Any) -> None:
    settings.PUBLIC_URL = "http://127.0.0.1:1"

    assert reports("api", "PUBLIC_URL is not answered: nobody listens there.", "Start the API")


def test_a_public_url_that_leads_to_another_deployment_is_found(settings: Any) -> None:
    with OtherDeployment() as other:
        settings.PUBLIC_URL = other.url

        assert reports("api", "is a deployment with another SECRET_KEY", "one SECRET_KEY")


def test_a_host_that_the_api_refuses_is_found(api: None, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["app.example.org"]

    assert reports("api", "The API refuses the host of PUBLIC_URL.", "ALLOWED_HOSTS")
    assert reports("configuration", "accessa.W202", "ALLOWED_HOSTS", level=Level.WARNING)


def test_callbacks_to_another_deployment_a_trusting_one_and_nowhere_are_found(
    llamaparse: LlamaParseServer, settings: Any, api: None
) -> None:
    with OtherDeployment() as other:
        settings.LLAMAPARSE_CALLBACK_URL = f"{other.url}/webhooks/llamaparse"
        assert reports("callback", "does not know secret 1 of 2", "LLAMAPARSE_WEBHOOK_SECRETS")
    with OtherDeployment(trusting=True) as other:
        settings.LLAMAPARSE_CALLBACK_URL = f"{other.url}/webhooks/llamaparse"
        assert reports("callback", "takes a forged signature", "anybody can forge")
    assert reports("callback", "not answered: nobody listens there", "LLAMAPARSE_CALLBACK_URL")
    settings.LLAMAPARSE_CALLBACK_URL = f"{settings.PUBLIC_URL}/webhooks/llama"
    assert reports("callback", "answers 404, and not as this API does", "/webhooks/llamaparse")
    settings.LLAMAPARSE_CALLBACK_URL = ""
    assert reports("callback", "no address to call back", "PUBLIC_URL", level=Level.WARNING)


def test_origins_that_may_not_call_and_strangers_that_may_are_found(api: None, settings: Any) -> None:
    settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
    with OtherDeployment() as other:
        settings.PUBLIC_URL = other.url
        assert reports("cors-api", f"{ORIGIN} may not call the API", "CORS_ALLOWED_ORIGINS")


def test_anybody_may_call_is_found(api: None, settings: Any) -> None:
    settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
    settings.CORS_ALLOW_ALL_ORIGINS = True

    assert reports("cors-api", "Browsers of any origin may call", "no proxy may add *")


# The files


def test_a_missing_bucket_and_a_key_that_is_refused_are_found(strict: S3Server, settings: Any) -> None:
    use_s3_storage(settings, strict, S3_PARSED_BUCKET="nobody-made-it")
    assert reports("storage-parsed", "parsed files cannot be written and read: it does not exist", "Make the bucket")
    use_s3_storage(settings, strict)
    strict.inject_fault("PUT /raw/doctor/*", "status-403", times=2)

    assert reports("storage-raw", "raw files cannot be written and read: the key may not do that", "s3:PutObject")
    strict.clear_faults()


@pytest.mark.slow
def test_an_unreachable_store_is_not_reported_as_a_bad_key(settings: Any) -> None:
    with S3Server() as server:
        use_s3_storage(settings, server)

    assert reports("storage-raw", "written and read: nobody answers at S3_ENDPOINT_URL", "correct S3_ENDPOINT_URL")


def test_a_bucket_that_trusts_altered_signatures_is_found(lenient: S3Server, settings: Any) -> None:
    use_s3_storage(settings, lenient)  # moto looks at none

    everything = run_findings("storage-raw")

    assert has_finding(everything, "given out with an altered signature", "private")
    assert has_finding(everything, "taken with an altered signature", "private")
    assert list(storages["raw"].names()) == []  # type: ignore[attr-defined]


def test_bucket_cors_with_another_origin_is_reported(lenient: S3Server, settings: Any, api: None) -> None:
    use_s3_storage(settings, lenient)
    settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
    rule = {"AllowedOrigins": [settings.PUBLIC_URL], "AllowedMethods": ["PUT"], "AllowedHeaders": ["*"]}
    lenient.client().put_bucket_cors(Bucket="raw", CORSConfiguration={"CORSRules": [rule]})

    everything = run_findings("cors-bucket")

    assert has_finding(everything, f"{ORIGIN} may not upload", "x-amz-checksum-sha256")
    assert not has_finding(everything, f"{settings.PUBLIC_URL} may not", "")


ENCRYPTING = {"S3_ENCRYPTION": "aws:kms", "S3_KMS_KEY_ID": "a-key"}
KEY_ID = "x-amz-server-side-encryption-aws-kms-key-id"


@pytest.mark.parametrize(
    ("changed", "allowed", "missing"),
    [
        ({"S3_SIGN_SHA256": False}, ["content-type"], None),
        ({"S3_SIGN_SHA256": True}, ["content-type"], "x-amz-checksum-sha256"),
        (ENCRYPTING, ["content-type", "x-amz-checksum-sha256", "x-amz-server-side-encryption"], KEY_ID),
        (ENCRYPTING, ["content-type", "x-amz-checksum-sha256", "x-amz-server-side-encryption", KEY_ID], None),
    ],
)
def test_a_bucket_must_allow_the_headers_that_uploads_send_and_no_more(
    changed: dict[str, Any], allowed: list[str], missing: str | None, lenient: S3Server, settings: Any, api: None
) -> None:
    use_s3_storage(settings, lenient, **changed)
    rule = {"AllowedOrigins": [settings.PUBLIC_URL], "AllowedMethods": ["PUT"], "AllowedHeaders": allowed}
    lenient.client().put_bucket_cors(Bucket="raw", CORSConfiguration={"CORSRules": [rule]})

    everything = run_findings("cors-bucket")

    assert has_finding(everything, f"the header {missing} is not allowed", f"{missing}") == (missing is not None)
    assert has_finding(everything, "may not upload", "") == (missing is not None)


def test_local_files_that_the_api_does_not_serve_are_found(settings: Any, store: None) -> None:
    with OtherDeployment() as other:
        settings.PUBLIC_URL = other.url
        assert reports("storage-raw", "A signed URL of a raw file is answered 403", "the same SECRET_KEY")


def test_a_folder_that_cannot_be_written_is_found(settings: Any, tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    settings.STORAGE_ROOT = tmp_path / "file"

    assert reports("storage-raw", "cannot be written by user", "STORAGE_ROOT")


def test_a_full_disk_is_named_by_what_writes_and_by_the_api(
    api: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    full = SimpleNamespace(f_bavail=0, f_blocks=1, f_bfree=0, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    monkeypatch.setattr(os, "fsync", has_no_room)

    assert reports("storage-raw", "has no room", "Make room")
    assert reports("api", "the disk of its files is full", "Make room")


def test_an_api_without_storage_is_not_reported_as_without_database(api: None, settings: Any, tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    settings.STORAGE_ROOT = tmp_path / "file"

    assert reports("api", "The API answers, but cannot use its file store.", "STORAGE_ROOT")


def test_probes_of_a_killed_doctor_are_deleted_by_the_next(api: None, settings: Any) -> None:
    bucket: Any = storages["raw"]
    bucket.put("doctor/left", b"by a doctor that was killed")
    bucket.put("doctor/now", b"by a doctor at work")
    os.utime(Path(bucket.path("doctor/left")), (0, 0))

    assert reports("storage-raw", "Removed what an earlier doctor had left.", "", level=Level.OK)

    assert (bucket.exists("doctor/left"), bucket.exists("doctor/now")) == (False, True)


# The vendors


@pytest.mark.parametrize(
    ("kind", "says", "remedy"),
    [
        ("status-401", "LlamaParse refuses its key (401).", "set LLAMAPARSE_API_KEY"),
        ("status-402", "no credit left", "Top it up"),
        ("status-404", "LlamaParse answers 404.", "LLAMAPARSE_BASE_URL"),
        ("status-503", "a fault of its own", "status page"),
        ("html-200", "is not LlamaParse", "LLAMAPARSE_BASE_URL"),
    ],
)
def test_a_parser_that_does_not_work_is_found(llamaparse: LlamaParseServer, kind: str, says: str, remedy: str) -> None:
    llamaparse.inject_fault("GET /api/v2/parse", kind)

    assert reports("parser", says, remedy)
    assert llamaparse.ledger.summary()["sold"] == 0


def widen(body: dict[str, Any]) -> None:
    body["data"][0]["embedding"] = [0.5] * 3072


@pytest.mark.parametrize(
    ("kind", "says", "remedy"),
    [
        ("status-401", "OpenAI refuses its key.", "set OPENAI_API_KEY"),
        ("status-404", "OpenAI answers 404.", "OPENAI_BASE_URL"),
        ("status-503", "a fault of its own", "status page"),
        ("html-200", "VENDOR_ANSWER_INVALID", "OPENAI_BASE_URL"),
        ("wrong-model", "Another model than text-embedding-3-small", "OPENAI_BASE_URL"),
        (spoil_json(widen), "is not 1536 wide", "OPENAI_BASE_URL"),
    ],
)
def test_an_embedder_that_does_not_work_is_found(openai: OpenAIServer, kind: Any, says: str, remedy: str) -> None:
    before = rows()
    openai.inject_fault("POST /v1/embeddings", kind)

    assert reports("embedder", says, remedy)
    assert rows() == before


def test_an_unreachable_and_a_hanging_vendor_are_reported(openai: OpenAIServer, settings: Any) -> None:
    openai.inject_fault("POST /v1/embeddings", "hang")
    settings.VENDOR_TIMEOUT_SECONDS = 0.3
    assert reports("embedder", "OpenAI does not answer.", "OPENAI_BASE_URL")
    openai.refuse_connections()

    assert reports("embedder", "OpenAI does not answer.", "OPENAI_BASE_URL")


@pytest.mark.parametrize(
    ("planted", "says", "remedy"),
    [
        ({"EMBEDDER": "opneai"}, "There is no embedder 'opneai'", "EMBEDDER=local"),
        (
            {"BOOTS_BRAIN_URL": "http://127.0.0.1:9", "BRAIN_API_SECRET": "secret"},
            "The other deployment does not answer: nobody listens there.",
            "BOOTS_BRAIN_URL",
        ),
        (
            {"EMBEDDER": "remote", "BOOTS_BRAIN_URL": "http://127.0.0.1:9", "BRAIN_API_SECRET": "secret"},
            "The other deployment does not answer: nobody listens there.",
            "BOOTS_BRAIN_URL",
        ),
    ],
)
def test_an_unreachable_embedder_is_reported_and_other_checks_continue(
    planted: dict[str, str], says: str, remedy: str, settings: Any
) -> None:
    ActiveModel.objects.create(user_id=uuid4(), embed_model="gone", embed_version="2")
    for name, value in planted.items():
        setattr(settings, name, value)

    verdicts = {each.name: each for each in run_checks(CHECKS, only=["database", "migrations", "limits", "embedder"])}

    assert [verdict.level.value for verdict in verdicts.values()] == ["ok", "ok", "ok", "error"]
    assert says in verdicts["embedder"].findings[0].message
    assert remedy in verdicts["embedder"].findings[0].remedy
    (warning,) = check_embedding_models(app_configs=None, databases=["default"])
    assert warning.id == "accessa.W004"


def test_tenants_with_an_unavailable_model_are_reported_with_the_embedder() -> None:
    ActiveModel.objects.create(user_id=uuid4(), embed_model="gone", embed_version="2")

    assert reports("embedder", "gone@2, with which 1 tenants", "reembed", level=Level.WARNING)


def test_keys_of_tokens_that_cannot_be_had_are_found(settings: Any) -> None:
    with OtherDeployment() as other:
        settings.SUPABASE_JWKS_URL = f"{other.url}/auth/v1/.well-known/jwks.json"

        assert reports("signers", "answers 200 and no keys", "jwks.json")


def test_clocks_that_are_wrong_are_found(settings: Any) -> None:
    live_clusters.record_heartbeat()
    Cluster.objects.update(clock_ahead=90)
    with OtherDeployment(clock=-1000) as other:
        settings.PUBLIC_URL = other.url

        everything = run_findings("clocks")

    assert has_finding(everything, "The clock of the API is 100", "time server")
    assert has_finding(everything, "is 90 s ahead of", "time server", level=Level.WARNING)


# Contradictions


def supabase_key(role: str, ref: str = "abcdefghijklmnopqrst", secret: str = "s" * 32) -> str:
    return jwt.encode({"iss": "supabase", "ref": ref, "role": role, "exp": 4_000_000_000}, secret, "HS256")


PROJECT = {"SUPABASE_URL": "https://abcdefghijklmnopqrst.supabase.co", "SUPABASE_JWT_SECRET": "s" * 32}
CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"PUBLIC_URL": "accessa.example.org"}, "accessa.E201", "scheme://host"),
    ({"PUBLIC_URL": "https://accessa.example.org"}, "accessa.W202", "ALLOWED_HOSTS"),
    ({"PUBLIC_URL": "http://accessa.example.org", "SESSION_COOKIE_SECURE": True}, "accessa.W203", "https"),
    ({"PUBLIC_URL": "https://accessa.example.org", "DEBUG": True}, "accessa.W204", "Unset DEBUG"),
    ({"PUBLIC_URL": "https://accessa.example.org", "STORAGE": "local"}, "accessa.W205", "bucket"),
    ({"S3_ACCESS_KEY_ID": "key", "STORAGE": "local"}, "accessa.W206", "Unset STORAGE"),
    ({"S3_ACCESS_KEY_ID": "key", "STORAGE": "s3"}, "accessa.E207", "S3_SECRET_ACCESS_KEY"),
    ({"S3_PARSED_BUCKET": "raw", "STORAGE": "s3"}, "accessa.E208", "a bucket each"),
    ({"S3_ENCRYPTION": "aes", "STORAGE": "s3"}, "accessa.E209", "AES256"),
    ({"S3_KMS_KEY_ID": "key", "STORAGE": "s3"}, "accessa.E210", "aws:kms"),
    ({"PARSER": "llama"}, "accessa.E211", "PARSER"),
    ({"PARSER": "llamaparse"}, "accessa.E212", "LLAMAPARSE_API_KEY"),
    ({"LLAMAPARSE_API_KEY": "llx-key"}, "accessa.W213", "Unset PARSER"),
    ({"EMBEDDER": "openai"}, "accessa.E214", "OPENAI_API_KEY"),
    ({"EMBEDDER": "ada"}, "accessa.E214", "openai"),
    ({"OPENAI_API_KEY": "sk-key"}, "accessa.W215", "Unset EMBEDDER"),
    ({"ANSWERER": "openai"}, "accessa.E264", "OPENAI_API_KEY"),
    ({"ANSWERER": "oracle"}, "accessa.E263", "extractive"),
    (
        {"EMBEDDER": "remote", "BOOTS_BRAIN_URL": "http://127.0.0.1:8000", "BRAIN_API_SECRET": "s"},
        "accessa.E216",
        "BOOTS",
    ),
    ({"BOOTS_BRAIN_URL": "https://brain.example"}, "accessa.W261", "BRAIN_API_SECRET"),
    ({"SENTENCE_MODEL": "bert"}, "accessa.E265", "minilm, none"),
    ({"SENTENCE_MODEL": "no.such.Model"}, "accessa.E265", "Correct the dotted path"),
    ({"RERANKER": "cohere"}, "accessa.E262", "the whole address"),
    ({"LLAMAPARSE_WEBHOOK_SECRETS": ["whsec_" + "ä" * 30]}, "accessa.E217", "openssl"),
    ({"LLAMAPARSE_WEBHOOK_SECRETS": ["short"]}, "webhooks.E001", "openssl"),
    ({"LLAMAPARSE_CALLBACK_URL": "http://127.0.0.1:8000/hook"}, "accessa.E218", "/webhooks/llamaparse"),
    ({"OPENAI_API_KEY": "'sk-key'", "EMBEDDER": "openai"}, "accessa.E219", "without quotes"),
    ({"OPENAI_API_KEY": "llx-key", "EMBEDDER": "openai"}, "accessa.E220", "Exchange"),
    ({"SUPABASE_URL": PROJECT["SUPABASE_URL"]}, "accessa.W221", "SUPABASE_JWKS_URL=https://abc"),
    ({**PROJECT, "SUPABASE_ANON_KEY": supabase_key("anon", "z" * 20)}, "accessa.E222", "same project"),
    ({**PROJECT, "SUPABASE_SERVICE_ROLE": supabase_key("anon")}, "accessa.E223", "service_role key"),
    ({**PROJECT, "SUPABASE_ANON_KEY": supabase_key("anon", secret="t" * 32)}, "accessa.E224", "same project"),
    ({"MAX_PAGES": 0}, "accessa.E225", "raise it"),
    ({"POLLS_PER_MINUTE": -1}, "accessa.E225", "POLLS_PER_MINUTE"),
    ({"TENANT_DAILY_CENTS": -1}, "accessa.E225", "TENANT_DAILY_CENTS"),
    ({"CHUNKER": "markdown-simple@9"}, "accessa.E226", "CHUNKER"),
    (
        {"TENANT_DAILY_CENTS": 0.1, "PARSER": "llamaparse", "LLAMAPARSE_API_KEY": "llx-key"},
        "accessa.W227",
        "Raise TENANT_DAILY_CENTS",
    ),
    ({"JOBS_STOP_GRACE_SECONDS": 28.0}, "accessa.W228", "Lower JOBS_STOP_GRACE_SECONDS"),
    ({"JOBS_STOP_SECONDS": 60.0}, "accessa.W229", "JOBS_STOP_SECONDS"),
    ({"JOBS_LEASE_SECONDS": 2.5, "JOBS_DRAIN_SECONDS": 1.0}, "accessa.W230", "JOBS_LEASE_SECONDS"),
    ({"VENDOR_BREAKER_FAULTS": 9}, "accessa.W231", "VENDOR_BREAKER_FAULTS"),
    (
        {"CORS_ALLOWED_ORIGINS": ["http://app.example.org"], "PUBLIC_URL": "https://accessa.example.org"},
        "accessa.W232",
        "https://",
    ),
    ({"SUPABASE_JWT_SECRET": "x" * 31}, "accessa.E234", "openssl rand"),
    ({"MCP_AUTHORIZATION_SERVER": "https://auth.example.org"}, "accessa.E266", "SUPABASE_JWKS_URL"),
    ({"S3_ENDPOINT_URL": "minio:9000", "STORAGE": "s3"}, "accessa.E235", "scheme://host"),
    ({"CORS_ALLOWED_ORIGINS": ["*"]}, "corsheaders.E013", ""),
]


@pytest.mark.parametrize(("planted", "id", "remedy"), CONTRADICTIONS, ids=[each[1] for each in CONTRADICTIONS])
def test_a_contradiction_is_reported_without_secrets(
    planted: dict[str, Any], id: str, remedy: str, settings: Any
) -> None:
    for name, value in planted.items():
        setattr(settings, name, value)

    level = Level.WARNING if id.startswith("accessa.W") else Level.ERROR
    assert reports("configuration", f"({id})", remedy, level=level)
    secrets = [str(value) for name, value in planted.items() if name in SECRETS and len(str(value)) > 5]
    assert not any(secret in str(run_findings("configuration")) for secret in secrets)


def test_a_laptops_defaults_at_a_public_address_are_found(settings: Any) -> None:
    settings.PUBLIC_URL = "https://accessa.example.org"
    settings.SECRET_KEY_IS_LOCAL = True

    assert reports("deployment", "accessa.E103", "Set SECRET_KEY.")
    assert reports("deployment", "accessa.W107", "Set TRUSTED_PROXIES", level=Level.WARNING)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OPENAI_API_KEYS", "OPENAI_API_KEY"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("SUPABASE_SERVICE_ROLE_KEY", "SUPABASE_SERVICE_ROLE"),
        ("ALOWED_HOSTS", "ALLOWED_HOSTS"),
        ("WORKER", "WORKERS"),
        ("JOBS_LEASE_SECOND", "JOBS_LEASE_SECONDS"),
    ],
)
def test_a_variable_that_nothing_reads_is_found(name: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with suppress(KeyError):
        monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv(name, "value")

    assert reports("configuration", f"Nothing reads {name}.", f"Did you mean {meant}", level=Level.WARNING)
