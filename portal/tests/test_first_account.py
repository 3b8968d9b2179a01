"""The first account of an installation: on this machine, with the code, once."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts import rate_limit
from accounts.audit.models import AuditEntry
from accounts.models import User
from documents.error_codes import LENGTH_MISMATCH
from documents.models import Document
from documents.storage.buckets import UploadRejected
from testing.concurrency import run_concurrently
from testing.personas import Person

pytestmark = pytest.mark.django_db
CODE = "K7QF-9MZP"
PASSWORD = "a long enough password"
FIELDS = {"code": CODE, "email": "Eva@example.org", "new_password1": PASSWORD, "new_password2": PASSWORD}
HERE = {"HTTP_HOST": "127.0.0.1:8000", "REMOTE_ADDR": "127.0.0.1"}
TITLE = "Create the first account"


@pytest.fixture(autouse=True)
def _code(settings: Any) -> None:
    settings.FIRST_ACCOUNT_CODE = CODE


def here(**environ: str) -> Client:
    return Client(headers={"accept": "text/html"}, raise_request_exception=False, **HERE | environ)  # type: ignore[arg-type]


def test_it_creates_an_account_that_may_do_everything_and_signs_it_in() -> None:
    client = here()
    assert TITLE in client.get("/").content.decode()

    answer = client.post("/", FIELDS | {"code": " k7qf9mzp "})

    user = User.objects.get()
    assert (answer.status_code, answer["Location"], user.email, user.is_superuser) == (
        302,
        "/",
        "eva@example.org",
        True,
    )
    assert "Your documents" in client.get("/").content.decode()
    assert "users.create_superuser" in AuditEntry.objects.values_list("action", flat=True)
    assert PASSWORD not in str(list(AuditEntry.objects.values()))


def test_a_sample_is_added_to_ask_about() -> None:
    client = here()

    client.post("/", FIELDS | {"sample": "on"})

    assert Document.objects.get().filename == "summary_of_benefits.pdf"
    assert "The sample is being read." in client.get("/").content.decode()


@pytest.mark.parametrize("problem", [OSError("No space left on device: /secret/path"), None])
def test_an_account_without_its_sample_is_an_account(problem: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise problem or UploadRejected(LENGTH_MISMATCH)

    monkeypatch.setattr("documents.services.upload_file", fail)
    client = here()

    client.post("/", FIELDS | {"sample": "on"})

    page = client.get("/").content.decode()
    assert "The sample could not be added." in page
    assert "/secret/path" not in page


@pytest.mark.parametrize(
    "environ",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"REMOTE_ADDR": "::ffff:192.0.2.7"},
        {"REMOTE_ADDR": ""},
        {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"HTTP_X_FORWARDED_HOST": "localhost"},
        {"HTTP_X_REAL_IP": "127.0.0.1"},
        {"HTTP_FORWARDED": "for=127.0.0.1"},
        {"HTTP_VIA": "1.1 proxy"},
        {"HTTP_HOST": "accessa.example.org"},
        {"HTTP_HOST": "localhost.example.org:8000"},
    ],
)
def test_other_addresses_and_proxies_get_the_sign_in(environ: dict[str, str], settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]

    for answer in (here(**environ).get("/"), here(**environ).post("/", FIELDS)):
        assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/sign-in")
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "environ",
    [
        {"REMOTE_ADDR": "::1", "HTTP_HOST": "[::1]:8000"},
        {"REMOTE_ADDR": "::ffff:127.0.0.1"},
        {"HTTP_HOST": "localhost"},
    ],
)
def test_this_machine_has_several_addresses(environ: dict[str, str]) -> None:
    assert TITLE in here(**environ).get("/").content.decode()


def test_it_is_gone_with_the_first_account_and_without_a_code(settings: Any) -> None:
    settings.FIRST_ACCOUNT_CODE = ""
    without_code = here().get("/")
    settings.FIRST_ACCOUNT_CODE = CODE
    Person("ana")

    for answer in (without_code, here().get("/"), here().post("/", FIELDS)):
        assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/sign-in")
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "sentence", "status"),
    [
        ({"code": ""}, "This field is required.", 403),
        ({"code": "K7QF-9MZQ"}, "This is not the code.", 403),
        ({"code": "K7QF\x00"}, "Null characters are not allowed.", 403),
        ({"code": "ñ" * 30}, "This is not the code.", 403),
        ({"code": "K" * 100_000}, "at most 40 characters", 403),
        ({"email": "no address"}, "Enter a valid email address.", 200),
        ({"email": f"{'a' * 200}@example.org"}, "at most 150 characters", 200),
        ({"new_password2": "other"}, "The two password fields", 200),
        ({"new_password1": "short", "new_password2": "short"}, "This password is too short.", 200),
        ({"new_password1": "eva@example.org", "new_password2": "eva@example.org"}, "too similar", 200),
    ],
)
def test_what_is_wrong_is_named_and_creates_nothing(fields: dict[str, str], sentence: str, status: int) -> None:
    answer = here().post("/", FIELDS | fields)

    assert answer.status_code == status
    assert sentence in answer.content.decode()
    assert PASSWORD not in answer.content.decode()
    assert not User.objects.exists()


def test_the_code_cannot_be_guessed() -> None:
    client = here()
    for _ in range(int(rate_limit.CODES_TRIED.uses)):
        client.post("/", FIELDS | {"code": "AAAA-AAAA"})

    answer = client.post("/", FIELDS)

    assert "There were too many attempts." in answer.content.decode()
    assert not User.objects.exists()


def test_it_is_a_form_of_ours() -> None:
    answer = Client(enforce_csrf_checks=True, **HERE).post("/", FIELDS)  # type: ignore[arg-type]

    assert answer.status_code == 403
    assert not User.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_of_several_at_once_one_creates_the_account() -> None:
    def create(name: str) -> Any:
        answer = here().post("/", FIELDS | {"email": f"{name}@example.org"})
        return answer.status_code, answer["Location"].partition("?")[0]

    answers = run_concurrently(*(lambda name=name: create(name) for name in "abcd"))

    assert sorted(answers) == [(302, "/"), *[(302, "/sign-in")] * 3]
    assert User.objects.count() == 1
    assert not connection.in_atomic_block
