"""Signing in by e-mail and password, for tenants' pages and the admin alike."""

from __future__ import annotations

import hashlib
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from accounts import rate_limit
from accounts.errors import ApiError
from accounts.models import User


class EmailBackend(ModelBackend):
    """Whatever was wrong, the answer is the same and takes as long; too many tries look like a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        email = (username or "").strip().lower()
        if not email or password is None:
            return None
        client = client_network(client_address(request)) if request else ""
        _count(client, email)
        user = User.objects.filter(email=email).first()
        # An unknown account's password is hashed too: the time must not tell who is known.
        if (user or User()).check_password(password) and user and self.user_can_authenticate(user):
            rate_limit.refund(rate_limit.SIGN_IN_FAILURES, _client_digest(client))
            return user
        return None


def _count(client: str, email: str) -> None:
    # Digests: what is typed as an address may be a password in the wrong field.
    account = hashlib.sha256(f"{client} {email}".encode()).hexdigest()
    try:
        rate_limit.check_rate(rate_limit.SIGN_INS, account)
        rate_limit.check_rate(rate_limit.SIGN_IN_FAILURES, _client_digest(client))
    except ApiError as refused:
        raise PermissionDenied from refused  # no other backend is asked, and the form says its one sentence


def _client_digest(client: str) -> str:
    return hashlib.sha256(client.encode()).hexdigest()


def client_network(client: str) -> str:
    """Return what is counted as one: of IPv6 a /64, whose addresses are all one customer's."""
    try:
        found = ip_address(client)
    except ValueError:
        return client
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False))


def client_address(request: HttpRequest) -> str:
    """Return whom the request comes from: past our own proxies the header is the client's to invent."""
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
    hops.append(request.META.get("REMOTE_ADDR", ""))
    return str(hops[-1 - min(settings.TRUSTED_PROXIES, len(hops) - 1)])
