"""Settings of the file store: selection of the S3 endpoint, missing keys."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

SETTINGS = Path(__file__).resolve().parents[1] / "settings.py"
PROJECT = "https://abcdefgh.supabase.co"
KEYS = {"S3_ACCESS_KEY_ID": "key", "S3_SECRET_ACCESS_KEY": "secret"}
ROLE = {"SUPABASE_URL": PROJECT, "SUPABASE_SERVICE_ROLE": "role", "SUPABASE_ANON_KEY": "anon"}
AT_SUPABASE = "https://abcdefgh.storage.supabase.co/storage/v1/s3"


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    for name in ("STORAGE", "S3_ENDPOINT_URL", "S3_PRESIGN", "S3_SIGN_SHA256", *KEYS, *ROLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(SETTINGS))


def is_s3(config: dict[str, Any]) -> bool:
    return bool(config["STORAGES"]["raw"]["BACKEND"] == "documents.storage.s3.S3Bucket")


@pytest.mark.parametrize(
    ("variables", "endpoint", "sha256"),
    [
        (KEYS, None, True),
        ({"STORAGE": "s3"}, None, True),
        (KEYS | {"S3_ENDPOINT_URL": "http://minio:9000"}, "http://minio:9000", True),
        (KEYS | {"SUPABASE_URL": PROJECT}, AT_SUPABASE, False),
        (KEYS | {"SUPABASE_URL": "http://127.0.0.1:54321/"}, "http://127.0.0.1:54321/storage/v1/s3", False),
        (KEYS | ROLE, AT_SUPABASE, False),
        (KEYS | ROLE | {"S3_ENDPOINT_URL": "http://minio:9000"}, "http://minio:9000", True),
    ],
)
def test_a_named_endpoint_goes_before_supabases_and_that_before_aws(
    variables: dict[str, str], endpoint: str | None, sha256: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read(monkeypatch, **variables)

    assert is_s3(config)
    assert config["S3_ENDPOINT_URL"] == endpoint
    assert config["S3_SIGN_SHA256"] is sha256
    assert config["S3_PRESIGN"] is True
    assert config["S3_SESSION_TOKEN"] == ""
    assert config["S3_ADDRESSING_STYLE"] == ("path" if endpoint else "auto")


@pytest.mark.parametrize(("anon", "signer"), [("anon", "anon"), ("", "abcdefgh")])
@pytest.mark.parametrize("presign", [{}, {"S3_PRESIGN": "true"}])
def test_the_service_role_alone_serves_as_a_session_and_never_presigns(
    presign: dict[str, str], anon: str, signer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read(monkeypatch, **{**ROLE, "SUPABASE_ANON_KEY": anon}, **presign)

    assert is_s3(config)
    assert config["S3_ENDPOINT_URL"] == AT_SUPABASE
    assert (config["S3_ACCESS_KEY_ID"], config["S3_SECRET_ACCESS_KEY"]) == ("abcdefgh", signer)
    assert config["S3_SESSION_TOKEN"] == "role"
    assert config["S3_PRESIGN"] is False


def test_files_stay_here_without_any_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_s3(read(monkeypatch))
    assert not is_s3(read(monkeypatch, SUPABASE_URL=PROJECT))
    assert not is_s3(read(monkeypatch, STORAGE="local", **ROLE))


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"STORAGE": "ftp"}, "STORAGE"),
    ],
)
def test_missing_or_wrong_storage_settings_stop_the_start(
    variables: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImproperlyConfigured, match=named):
        read(monkeypatch, **variables)
