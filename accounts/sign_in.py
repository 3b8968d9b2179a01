"""Sign-in by e-mail and password, with rate limits per account and client."""

import hashlib
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from accounts import rate_limit
from accounts.error_codes import ApiError
from accounts.models import User


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
            raise PermissionDenied from error  # no other backend is tried
        user = User.objects.filter(email=email).first()
        # The password of an unknown account is hashed too: the time must not reveal which accounts exist.
        if (user or User()).check_password(password) and user and self.user_can_authenticate(user):
            rate_limit.remove_last_use(rate_limit.SIGN_IN_FAILURES, client_digest)
            return user
        return None


def client_network(client: str) -> str:
    """Return the network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


def client_address(request: HttpRequest) -> str:
    """Return the client's address. Only our own proxies' entries of X-Forwarded-For are trusted."""
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
    hops.append(request.META.get("REMOTE_ADDR", ""))
    return str(hops[-1 - min(settings.TRUSTED_PROXIES, len(hops) - 1)])
