"""System checks of the database, of development defaults and of buckets."""

import json
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from django.core.files.storage import storages
from django.db import connection

from accessa.checks import active_models, database, s3_error_messages
from accessa.checks.bucket_probe import check_buckets
from accessa.checks.deployment import check_deployment
from accessa.checks.settings import check_settings
from documents.tests.s3_settings import use_s3_storage
from embeddings.embedders import registry
from embeddings.models import ActiveModel
from testing.fakes.s3 import S3Server

STATEMENT = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::raw/*"}
PUBLIC = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


def deployment_ids() -> list[str]:
    return ids(check_deployment(app_configs=None))


@pytest.mark.django_db
def test_the_embedded_database_is_prepared() -> None:
    assert database.check_database(app_configs=None, databases=["default"]) == []


@pytest.mark.django_db
def test_tenants_with_an_unconfigured_model_are_reported() -> None:
    ActiveModel.objects.create(user_id=uuid4(), embed_model="wordllama-l2-supercat-256-padded", embed_version="1")
    ActiveModel.objects.create(user_id=uuid4(), embed_model="gone", embed_version="2")

    messages = active_models.check_embedding_models(app_configs=None, databases=["default"])

    assert ids(messages) == ["accessa.W003"]
    assert "gone@2, with which 1 tenants" in messages[0].msg


@pytest.mark.parametrize("names", [{"EMBEDDER": "minilm"}, {"EMBEDDERS_OF": {uuid4(): "minilm"}}])
def test_an_embedder_without_its_package_stops_the_worker(
    names: dict[str, Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`qcluster` and `consume_sqs` run these checks when they start."""
    monkeypatch.setitem(registry.OPTIONAL_PACKAGES, "minilm", ("numpy", "no-such-package"))
    settings.EMBEDDER = "local"
    for name, value in names.items():
        setattr(settings, name, value)

    (message,) = [each for each in check_settings(app_configs=None) if each.id == "accessa.E260"]

    assert message.msg.endswith("not installed: no-such-package.")
    assert "requirements/base.txt" in str(message.hint)


def test_database_checks_run_only_for_named_databases() -> None:
    assert database.check_database(app_configs=None) == []
    assert active_models.check_embedding_models(app_configs=None) == []


@pytest.mark.parametrize(
    ("installed", "available", "expected", "advice"),
    [
        (None, None, "accessa.E001", "install pgvector"),
        (None, "0.8.6", "accessa.E001", "As a superuser run in that database: CREATE EXTENSION vector;"),
        ("0.8.3", "0.8.6", "accessa.W001", "ALTER EXTENSION vector UPDATE;"),
        ("0.5.1", "0.5.1", "accessa.W001", "Update the server's pgvector"),
    ],
)
def test_a_missing_or_old_vector_extension_is_explained(
    installed: str | None, available: str | None, expected: str, advice: str
) -> None:
    (message,) = database.check_vector_extension(installed, available)

    assert message.id == expected
    assert advice in str(message.hint)


@pytest.mark.parametrize("installed", ["0.8.4", "0.8.6", "0.10.0", "1.0.0"])
def test_a_sound_vector_extension_passes(installed: str) -> None:
    assert ids(database.check_vector_extension(installed, installed)) == []


@pytest.mark.parametrize(
    ("state", "sql"),
    [
        ((False, None, True, False, "me"), "CREATE ROLE accessa_client NOLOGIN; GRANT accessa_client TO me"),
        ((True, False, True, False, "me"), "superuser: GRANT accessa_client TO me WITH INHERIT FALSE, SET TRUE;"),
        ((True, True, False, False, '"My App"'), 'superuser: ALTER ROLE "My App" BYPASSRLS;'),
    ],
)
def test_missing_roles_are_explained_with_their_sql(state: tuple[Any, ...], sql: str) -> None:
    (message,) = database.check_roles(*state)

    assert message.id == "accessa.E002"
    assert sql in str(message.hint)


def test_missing_roles_are_named_as_configured(settings: Any) -> None:
    settings.TENANT_ROLE = "authenticated"

    (message,) = database.check_roles(True, False, True, False, "me")

    assert "GRANT authenticated TO me" in str(message.hint)


@pytest.mark.django_db
def test_readable_statement_statistics_are_a_warning() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION public.pg_stat_statements(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")

    (message,) = database.check_database(app_configs=None, databases=["default"])

    assert message.id == "accessa.W005"
    assert "REVOKE ALL ON FUNCTION pg_stat_statements(integer) FROM PUBLIC, accessa_client;" in str(message.hint)


def test_a_superuser_is_a_warning() -> None:
    assert ids(database.check_roles(True, True, True, True, "postgres")) == ["accessa.W002"]


def test_deployment_refuses_development_defaults(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "accessa.embedded_postgres.backend")
    monkeypatch.setitem(settings.STORAGES["raw"], "BACKEND", "documents.storage.local.LocalSignedStorage")
    settings.SECRET_KEY_IS_LOCAL = settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL = True
    settings.DEBUG = settings.WEBHOOKS_ALLOW_LOOPBACK = True
    settings.EMAIL_HOST = "smtp.example.org"

    assert deployment_ids() == [f"accessa.E{number}" for number in (101, 102, 103, 104, 117, 110)]


def test_deployment_accepts_explicit_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    monkeypatch.setitem(settings.STORAGES["raw"], "BACKEND", "documents.storage.s3.S3Bucket")
    settings.SECRET_KEY_IS_LOCAL = settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL = False
    settings.EMAIL_HOST = "smtp.example.org"

    assert deployment_ids() == []

    settings.EMAIL_HOST, settings.EMAIL_USE_TLS, settings.EMAIL_USE_SSL = "", True, True
    assert deployment_ids() == ["accessa.W118", "accessa.E119"]


@pytest.mark.parametrize(
    ("storage", "encryption", "expected"),
    [("s3", "", ["accessa.E116"]), ("s3", "aws:kms", []), ("s3", "bucket-default", []), ("local", "", [])],
)
def test_deployment_demands_a_word_about_encryption_at_rest(
    storage: str, encryption: str, expected: list[str], settings: Any
) -> None:
    settings.STORAGE, settings.S3_ENCRYPTION = storage, encryption

    assert [each for each in deployment_ids() if each == "accessa.E116"] == expected


def test_a_public_address_without_trusted_proxies_is_a_warning(settings: Any) -> None:
    def warned() -> list[str]:
        return [each for each in deployment_ids() if each == "accessa.W107"]

    settings.METRICS_TOKEN = "another subject"
    assert warned() == []
    settings.PUBLIC_URL = "https://accessa.example.org"
    assert warned() == ["accessa.W107"]
    settings.TRUSTED_PROXIES = 1
    assert warned() == []


def test_a_public_address_without_metrics_token_is_a_warning(settings: Any) -> None:
    settings.PUBLIC_URL, settings.METRICS_TOKEN = "https://accessa.example.org", ""

    assert "accessa.W108" in deployment_ids()
    settings.METRICS_TOKEN = "one"
    assert "accessa.W108" not in deployment_ids()


# The buckets


def test_files_on_this_machine_are_not_probed(settings: Any) -> None:
    assert check_buckets(app_configs=None) == []


def test_two_private_buckets_pass_and_keep_nothing(settings: Any) -> None:
    with S3Server() as server:
        use_s3_storage(settings, server)

        assert check_buckets(app_configs=None) == []

        assert list(storages["raw"].names()) == []  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_missing_bucket_a_refused_key_and_an_absent_store_are_named(settings: Any) -> None:
    with S3Server() as server:
        use_s3_storage(settings, server, S3_PARSED_BUCKET="nobody-made-it")
        (missing,) = check_buckets(app_configs=None)
        use_s3_storage(settings, server, S3_PARSED_BUCKET="parsed")
        server.inject_fault("PUT /raw/*", "status-403", times=2)
        (refused,) = check_buckets(app_configs=None)
        server.refuse_connections()
        absent = check_buckets(app_configs=None)

    assert (missing.id, refused.id, ids(absent)) == ("accessa.E105",) * 2 + (["accessa.E105"] * 2,)
    assert "parsed" in missing.msg
    assert "raw" in refused.msg
    assert "s3:ListBucket" in str(missing.hint)
    assert "S3_ENDPOINT_URL" in str(absent[0].hint)


@pytest.mark.parametrize(
    ("status", "code", "says", "remedy"),
    [
        (403, "InvalidAccessKeyId", "the key is refused", "S3_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "the key is refused", "S3_SECRET_ACCESS_KEY"),
        (403, "AccessDenied", "the key may not do that", "s3:PutObject"),
        (404, "NoSuchBucket", "it does not exist", "S3_RAW_BUCKET"),
        (503, "SlowDown", "a fault of its own (503)", "Look at the store"),
    ],
)
def test_each_s3_error_has_a_remedy(status: int, code: str, says: str, remedy: str) -> None:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = OSError("away")
    error.__context__ = ClientError(answer, "PutObject")

    why, what_to_do = s3_error_messages.explain_s3_error("raw", error)

    assert says in why
    assert remedy in what_to_do


@pytest.mark.slow
def test_a_public_bucket_is_reported(settings: Any) -> None:
    with S3Server() as server:
        use_s3_storage(settings, server)
        server.client().put_bucket_acl(Bucket="raw", ACL="public-read")
        server.client().put_bucket_policy(Bucket="raw", Policy=PUBLIC)

        (public,) = check_buckets(app_configs=None)

    assert public.id == "accessa.E106"
    assert "raw" in public.msg
