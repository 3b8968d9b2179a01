"""Language of pages and mails: the user's choice, else the browser's. API and console speak English."""

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import translation
from django.utils.formats import date_format, number_format

from accounts.models import User
from outbox.mails import account_mails
from outbox.tests.test_mails import sent
from portal.tests.conftest import PASSWORD, signed_in, with_password
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
SPANISH = {"accept": "text/html,*/*", "accept-language": "es-MX,es;q=0.9,en;q=0.5"}


def browser(**headers: str) -> Client:
    return Client(headers=SPANISH | headers, raise_request_exception=False)


def speaks(person: Person, language: str) -> None:
    User.objects.filter(pk=person.id).update(language=language)


@pytest.mark.parametrize(
    ("accepted", "language"),
    [("es-MX", "es"), ("es-419,en;q=0.5", "es"), ("fr,es;q=0.2", "es"), ("fr", "en"), ("", "en"), ("\x00;q=x", "en")],
)
def test_a_page_is_in_a_language_that_the_browser_prefers(accepted: str, language: str) -> None:
    answer = browser(**{"accept-language": accepted}).get("/sign-in")

    assert f'<html lang="{language}">' in answer.content.decode()
    assert answer["Content-Language"] == language
    assert "Accept-Language" in answer["Vary"]


def test_the_users_choice_outranks_the_browser(ana: Person) -> None:
    client = signed_in(ana)
    assert "Your documents" in client.get("/", headers={"accept-language": "en"}).content.decode()

    answer = client.post("/language", {"language": "es", "next": "/settings/account?a=1"})

    assert (answer.status_code, answer["Location"]) == (303, "/settings/account?a=1")
    assert answer.cookies["django_language"].value == "es"
    assert User.objects.get(pk=ana.id).language == "es"
    del client.cookies["django_language"]
    assert "Sus documentos" in client.get("/", headers={"accept-language": "en"}).content.decode()


def test_whoever_is_not_signed_in_chooses_for_the_browser() -> None:
    client = browser()

    client.post("/language", {"language": "en", "next": "/sign-in"})

    assert "<h1>Sign in</h1>" in client.get("/sign-in").content.decode()


@pytest.mark.parametrize(
    ("fields", "location", "stored"),
    [
        ({"language": "xx", "next": "/find"}, "/find", ""),
        ({"language": "es\x00", "next": "/find"}, "/find", ""),
        ({}, "/", ""),
        ({"language": "es", "next": "https://evil.example"}, "/", "es"),
        ({"language": "es", "next": "//evil.example/"}, "/", "es"),
        ({"language": "es", "next": "javascript:alert(1)"}, "/", "es"),
        ({"language": "es", "next": "/find\r\nX: y"}, "/find%0D%0AX:%20y", "es"),
    ],
)
def test_the_switch_takes_known_languages_and_leads_to_own_pages(
    ana: Person, fields: dict[str, str], location: str, stored: str
) -> None:
    answer = signed_in(ana).post("/language", fields)

    assert (answer.status_code, answer["Location"]) == (303, location)
    assert User.objects.get(pk=ana.id).language == stored


def test_the_switch_is_a_form_of_ours(ana: Person) -> None:
    client = Client(enforce_csrf_checks=True, headers=SPANISH)
    client.force_login(ana.user)

    assert client.post("/language", {"language": "es"}).status_code == 403
    assert client.get("/language").status_code == 405
    assert User.objects.get(pk=ana.id).language == ""


def test_the_first_sign_in_stores_the_language_once(ana: Person) -> None:
    with_password(ana)
    fields = {"username": ana.user.email, "password": PASSWORD}

    browser().post("/sign-in", fields)
    first = User.objects.get(pk=ana.id).language
    browser(**{"accept-language": "en"}).post("/sign-in", fields)

    assert (first, User.objects.get(pk=ana.id).language) == ("es", "es")


def test_no_other_language_is_stored(ana: Person) -> None:
    with pytest.raises(Exception, match="user_language_known"):
        speaks(ana, "fr")


def test_the_api_and_the_console_stay_english(ana: Person, sam: Person) -> None:
    for person in (ana, sam):
        speaks(person, "es")
    ana.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "es"

    missing = ana.get(f"/documents/{ana.id}").json()
    refused = ana.request_upload(b"x", filename="a" * 300).json()
    login = browser().get("/admin/login/").content.decode()

    assert missing["detail"] == "Not found."
    assert refused["detail"].startswith("The name has 300 characters")
    assert 'lang="en"' in login
    assert "contraseña" not in login.lower()


def test_a_page_leaves_no_language_behind() -> None:
    browser().get("/sign-in")
    browser().get("/nothing-here")

    assert translation.get_language() == "en"
    assert browser().get("/documents").json()["detail"] == "Send a bearer token."


def test_error_pages_are_in_the_readers_language(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(ana, "es")
    client = signed_in(ana)

    missing = client.get("/nothing-here").content.decode()
    document = client.get(f"/d/{ana.id}").content.decode()

    for page in (missing, document):
        assert '<html lang="es">' in page
        assert "Esa página no existe" in page
        assert "Se eliminó o la dirección no está completa." in page
    assert "Este formulario ya no es válido" in _without_csrf(ana)


def _without_csrf(person: Person) -> str:
    client = Client(enforce_csrf_checks=True, headers=SPANISH)
    client.force_login(person.user)
    return client.post("/library/bulk").content.decode()


def test_without_a_database_the_browsers_language_is_used(ana: Person) -> None:
    client = browser()
    client.force_login(ana.user)

    with connection.execute_wrapper(_fail):
        answer = client.get("/")

    assert answer.status_code == 503
    assert "Fuera de servicio por un momento" in answer.content.decode()


def _fail(*args: Any) -> None:
    raise OperationalError


def test_pages_are_spanish_to_their_dates_and_reasons(ana: Person) -> None:
    speaks(ana, "es")
    ana.ingest(plan_pdf("hospital care"))
    ana.ingest(b"no pdf at all", filename="letter.pdf")

    page = signed_in(ana).get("/").content.decode()

    assert "El archivo no es un PDF." in page
    assert "Listo para buscar" in page
    assert "1 página" in page
    with translation.override("es"):
        assert date_format(ana.user.date_joined, "DATE_FORMAT") in page
        assert number_format(1234.5, 2, force_grouping=True) == "1,234.50"


def test_mails_are_in_the_users_language(ana: Person, ben: Person) -> None:
    User.objects.update(notify="each")
    speaks(ana, "es")
    ana.ingest(plan_pdf("hospital care"), filename="plan.pdf")
    ana.ingest(b"no pdf at all", filename="letter.pdf")
    ben.ingest(plan_pdf("drugs"))

    letters = {letter.subject: letter.body for letter in sent()}

    assert set(letters) == {"Su documento está listo", "No se pudo leer su documento", "Your document is ready"}
    assert "No se pudo leer “letter.pdf”. El archivo no es un PDF." in letters["No se pudo leer su documento"]


@pytest.mark.parametrize(("chosen", "subject"), [("", "Su contraseña nueva"), ("en", "Your new password")])
def test_a_mail_that_is_asked_for_on_a_page_is_in_its_language(ana: Person, chosen: str, subject: str) -> None:
    speaks(with_password(ana), chosen)

    browser().post("/reset-password", {"email": ana.user.email})

    assert sent()[0].subject == f"{subject} {'de' if not chosen else 'for'} Accessa"


def test_an_invitation_is_in_the_language_of_who_asked(settings: Any) -> None:
    settings.SIGN_UP = "open"
    browser().post("/sign-up", {"email": "eva@example.org"})
    account_mails.invite("fay@example.org")

    letters = {letter.subject: letter.body for letter in sent()}

    assert "durante 7 días:" in letters["Su cuenta en Accessa"]
    assert "within 7 days:" in letters["Your account at Accessa"]


def test_the_script_has_its_sentences() -> None:
    script = browser().get("/sentences/es.js")

    assert script["Content-Type"].startswith("text/javascript")
    assert "Subiendo." in script.content.decode()
    assert "Subiendo." not in browser().get("/sentences/en.js").content.decode()
    assert browser().get("/sentences/xx.js").status_code == 404
