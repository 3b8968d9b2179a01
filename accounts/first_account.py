"""First account of a new installation: who may create it, and its creation, once."""

from ipaddress import ip_address

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.utils.crypto import constant_time_compare

from accounts import rate_limit
from accounts.models import User
from accounts.sign_in import is_proxied

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")


def is_wanted(request: HttpRequest) -> bool:
    """Tell whether the request is from this machine and there is no account yet. Only `manage.py serve` sets a code."""
    return bool(settings.FIRST_ACCOUNT_CODE) and is_local(request) and not User.objects.exists()


def is_local(request: HttpRequest) -> bool:
    """Tell whether the request is from this machine, not through a proxy or a name that only leads here."""
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:  # a socket file: a proxy is before it
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    host, _ = split_domain_port(request.get_host())
    return address.is_loopback and host in LOCAL_HOSTS and not is_proxied(request)


def is_code(code: str) -> bool:
    """Compare with the printed code, without regard to case and dashes. Raises ``ApiError("TRIED_TOO_OFTEN")``."""
    rate_limit.check_rate(rate_limit.CODES_TRIED, "here")
    return constant_time_compare(_bare(code), _bare(settings.FIRST_ACCOUNT_CODE))


def _bare(code: str) -> str:
    return "".join(character for character in code.upper() if character.isalnum())


def create(email: str, password: str) -> User | None:
    """Create the account, a superuser; None if there is one meanwhile, whoever created it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE")  # nobody else inserts until the commit
        if User.objects.exists():
            return None
        return User.objects.create_superuser(email, email, password, audit_reason="the first account")
