"""Sessions of browsers: who is signed in where, and row-level security of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.utils import ProgrammingError
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts import sessions
from accounts.models import UserSession
from accounts.rls import as_tenant
from testing.personas import Person

pytestmark = pytest.mark.django_db


def sign_in(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def key(client: Client) -> str:
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def test_a_user_lists_their_sessions_and_ends_all_but_one(ana: Person, ben: Person) -> None:
    here, elsewhere, bens = sign_in(ana), sign_in(ana), sign_in(ben)

    listed = {row["session_id"] for row in sessions.list_sessions(ana.id)}
    ended = sessions.end_sessions(ana.id, keep=key(here))

    assert listed == {sessions.session_id(key(client)) for client in (here, elsewhere)}
    assert ended == 1
    assert [client.get("/").status_code for client in (here, elsewhere, bens)] == [200, 302, 200]


def test_expired_sessions_are_not_listed(ana: Person) -> None:
    sign_in(ana)
    UserSession.objects.update(expire_date=timezone.now() - timedelta(seconds=1))

    assert sessions.list_sessions(ana.id) == []


def test_the_last_use_is_noted_to_the_hour(ana: Person) -> None:
    client = sign_in(ana)
    for age, noted in ((timedelta(minutes=30), False), (timedelta(hours=2), True)):
        before = timezone.now() - age
        UserSession.objects.update(last_used_at=before)
        client.get("/")
        assert (UserSession.objects.get().last_used_at > before) is noted


def test_policies_alone_hide_the_sessions_of_others(ana: Person, ben: Person) -> None:
    sign_in(ana)

    with as_tenant(ben.id):
        assert not UserSession.objects.values("session_id").exists()
    with as_tenant(ana.id):
        assert UserSession.objects.values("session_id").count() == 1


def test_scoping_alone_hides_the_sessions_of_others(ana: Person, ben: Person) -> None:
    sign_in(ana)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE user_sessions DISABLE ROW LEVEL SECURITY")

    assert sessions.list_sessions(ben.id) == []
    assert len(sessions.list_sessions(ana.id)) == 1


@pytest.mark.parametrize("column", ["session_key", "session_data", "*"])
def test_a_tenant_reads_no_key_and_no_data(column: str, ana: Person) -> None:
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
        as_tenant(ana.id),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT {column} FROM user_sessions")


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "Safari on iOS"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit Chrome/130.0 Safari/537.36 Edg/130.0", "Edge on Windows"),
        ("<script>", ""),
        ("", ""),
    ],
)
def test_a_browser_has_a_plain_name(agent: str, name: str) -> None:
    headers: dict[str, Any] = {"user-agent": agent} if agent else {}

    assert sessions.browser_name(RequestFactory().get("/", headers=headers)) == name
