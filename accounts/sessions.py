"""Sessions of browsers: the store of Django's SESSION_ENGINE, the list of a user's sessions, sign-out of all others."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid5

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from accounts.models import UserSession
from accounts.rls import as_tenant

SIGN_IN = "sign_in"  # the key in a session: the browser's name, and when its user signed in
LAST_USE_SECONDS = 3_600  # the last use is noted as rarely as an API token's
SESSION_IDS = UUID("5e551015-0000-4000-8000-000000000000")
SHOWN = ("session_id", "browser", "signed_in_at", "last_used_at")
BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/|FxiOS", "Firefox"), ("Chrom|CriOS", "Chrome"),
            ("Safari/", "Safari"))  # fmt: skip
SYSTEMS = (("iPhone|iPad", "iOS"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
           ("Linux|X11", "Linux"))  # fmt: skip


class SessionStore(DatabaseStore):
    """Django's store with columns that name the user, so that their sessions can be listed and ended."""

    @classmethod
    def get_model_class(cls) -> type[UserSession]:
        return UserSession

    def create_model_instance(self, data: dict[str, Any]) -> UserSession:
        row: Any = super().create_model_instance(data)
        sign_in = data.get(SIGN_IN, {})
        row.session_id = session_id(row.session_key)
        row.user_id = data.get(SESSION_KEY)
        row.browser = sign_in.get("browser", "")
        row.signed_in_at = parse_datetime(sign_in.get("at", ""))
        row.last_used_at = timezone.now()
        return row  # type: ignore[no-any-return]

    def load(self) -> dict[str, Any]:
        data = super().load()
        if data:
            unused = UserSession.objects.filter(session_key=self.session_key)
            unused.filter(last_used_at__lt=Now() - timedelta(seconds=LAST_USE_SECONDS)).update(last_used_at=Now())
        return data


def session_id(session_key: str) -> UUID:
    """Return the id under which pages show a session: its key is a credential."""
    return uuid5(SESSION_IDS, session_key)


def record_sign_in(request: HttpRequest) -> None:
    """Note browser and time in the session that the sign-in is about to take over."""
    session: SessionBase | None = getattr(request, "session", None)
    if session is not None:
        session[SIGN_IN] = {"browser": browser_name(request), "at": timezone.now().isoformat()}


def browser_name(request: HttpRequest) -> str:
    """Return the browser and system of a request in plain words: no version or other detail of it is kept."""
    agent = request.headers.get("User-Agent", "")
    browser, system = (next((name for mark, name in names if re.search(mark, agent)), "")
                       for names in (BROWSERS, SYSTEMS))  # fmt: skip
    return " on ".join(filter(None, (browser, system)))


def list_sessions(user_id: UUID) -> list[dict[str, Any]]:
    """Return a user's valid sessions, the last used first, without keys and data: their role may not read these."""
    with as_tenant(user_id):
        valid = UserSession.objects.filter(user_id=user_id, expire_date__gt=Now())
        return list(valid.order_by("-last_used_at", "session_id").values(*SHOWN))


def end_sessions(user_id: UUID, *, keep: str | None = None) -> int:
    """Sign a user out everywhere but in the session whose key is ``keep``; return how many sessions ended."""
    return UserSession.objects.filter(user_id=user_id).exclude(session_key=keep or "").delete()[0]
