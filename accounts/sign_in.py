"""Sign-in by e-mail and password, with rate limits per account and client, and an audit entry for staff's."""

import hashlib
from contextlib import suppress
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest

from accounts import rate_limit, sessions
from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import User

# Headers that a proxy adds: the address is then the proxy's, not the client's. A client that sends them gains nothing.
PROXY_HEADERS = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")


class EmailBackend(ModelBackend):
    """Fails in the same way and time whatever was wrong; too many attempts look like a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        email = (username or "").strip().lower()
        if not email or password is None:
            return None
        client = client_network(client_address(request)) if request else ""
        # Digests: what is typed as an address may be a password in the wrong field.
        account_digest = hashlib.sha256(f"{client} {email}".encode()).hexdigest()
        client_digest = hashlib.sha256(client.encode()).hexdigest()
        try:
            rate_limit.check_rate(rate_limit.SIGN_INS, account_digest)
            rate_limit.check_rate(rate_limit.SIGN_IN_FAILURES, client_digest)
        except ApiError as error:
            record_refused_sign_in("users.sign_in_locked", rate_limit.LOCKED_SIGN_IN_ENTRIES, email, request)
            raise PermissionDenied from error  # no other backend is tried
        user = User.objects.filter(email=email).first()
        # The password of an unknown account is hashed too: the time must not reveal which accounts exist.
        if (user or User()).check_password(password) and user and self.user_can_authenticate(user):
            rate_limit.remove_last_use(rate_limit.SIGN_IN_FAILURES, client_digest)
            record_sign_in("users.sign_in", user, request, by=user)
            if request:
                sessions.record_sign_in(request)
            return user
        record_refused_sign_in("users.sign_in_failed", rate_limit.FAILED_SIGN_IN_ENTRIES, email, request)
        return None


def record_refused_sign_in(action: str, limit: rate_limit.Limit, email: str, request: HttpRequest | None) -> None:
    """Write a staff account's refused sign-in to the audit log, at most so many as ``limit`` allows.

    The use is counted for every account: the time of the response must not reveal which belong to staff.
    """
    with suppress(ApiError), transaction.atomic():
        rate_limit.check_rate(limit, hashlib.sha256(email.encode()).hexdigest())
        record_sign_in(action, User.objects.filter(email=email).first(), request, by=None)


def record_sign_in(action: str, user: User | None, request: HttpRequest | None, *, by: User | None) -> None:
    """Write an entry for a staff account; others leave none. Without a request nobody signs in."""
    if request and user and user.is_staff:
        log.record_action(
            by=by, unnamed=log.UNKNOWN_ACTOR, action=action, reason=f"sign-in at {request.path}", object_type="user",
            object_id=user.pk, client=client_network(client_address(request)),
        )  # fmt: skip


def client_network(client: str) -> str:
    """Return the network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


def is_proxied(request: HttpRequest) -> bool:
    """Tell whether a proxy has forwarded the request: it has one of their headers, whatever that says."""
    return any(name in request.headers for name in PROXY_HEADERS)


def client_address(request: HttpRequest) -> str:
    """Return the client's address. Only our own proxies' entries of X-Forwarded-For are trusted."""
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
    hops.append(request.META.get("REMOTE_ADDR", ""))
    return str(hops[-1 - min(settings.TRUSTED_PROXIES, len(hops) - 1)])
