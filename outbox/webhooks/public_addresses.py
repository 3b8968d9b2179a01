"""Addresses that webhooks may be sent to: public ones only, checked at each attempt by what the name resolves to."""

import ipaddress
import socket
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from accounts.errors import ApiError
from outbox.error_codes import WEBHOOK_URL_INVALID

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_URL_CHARS = 2000
LOWEST_PORT = 1024  # below it only 443: no mail server or the like gets a request
# All of IPv6 that is routed. Outside are NAT64 (64:ff9b::/96), IPv4-mapped, and fec0::/10, which Python calls global.
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# Of IANA's special-purpose registries, what Python calls global (in some versions): protocol assignments, where one
# cloud has its metadata; relays of 6to4; documentation.
SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))


class AddressRefused(Exception):
    """The host has an address that is not public, or none at all is allowed for the scheme."""


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in GLOBAL_UNICAST or address.sixtofour or address.teredo or address.scope_id
    ):
        return False
    if any(address in network for network in SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def is_allowed(address: Address, scheme: str) -> bool:
    """Tell whether a request by ``scheme`` may be sent to an address: http to loopback only, where that is allowed."""
    is_loopback = settings.WEBHOOKS_ALLOW_LOOPBACK and address.is_loopback
    return is_loopback or (scheme == "https" and is_public(address))


def resolve_allowed(host: str, port: int, *, scheme: str) -> list[str]:
    """Return the addresses of a host; raise ``AddressRefused`` if one of them is not allowed, ``OSError`` without any.

    One is enough to refuse: an answer that mixes addresses is an attack, or a mistake that its owner has to mend.
    """
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "The host is no name.") from None
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    if not all(is_allowed(ipaddress.ip_address(address), scheme) for address in addresses):
        raise AddressRefused
    return addresses


def check_url(url: str) -> str:
    """Return the URL of an endpoint, or raise ``ApiError`` WEBHOOK_URL_INVALID. Names are resolved at attempts only."""
    try:
        parts = urlsplit(url)
        default = 443 if parts.scheme == "https" else 80
        host, port = parts.hostname or "", default if parts.port is None else parts.port
        host.encode("ascii").decode("idna").encode("idna")
        httpx.URL(url)  # which sends it
    except (ValueError, httpx.InvalidURL):
        raise ApiError(WEBHOOK_URL_INVALID, field="url") from None
    is_local = settings.WEBHOOKS_ALLOW_LOOPBACK and parts.scheme == "http"
    is_plain = url.isascii() and url.isprintable() and not set(' \\"<>^`{|}') & set(url) and len(url) <= MAX_URL_CHARS
    is_named = bool(host) and "@" not in parts.netloc and not parts.fragment
    literal = _literal_address(host)
    if not (
        is_plain
        and is_named
        and (parts.scheme == "https" or is_local)
        and (port == 443 or port >= LOWEST_PORT)
        and (literal is None or is_allowed(literal, parts.scheme))
        and (literal is not None or "." in host.strip(".") or settings.WEBHOOKS_ALLOW_LOOPBACK)
    ):
        raise ApiError(WEBHOOK_URL_INVALID, field="url")
    return url


def _literal_address(host: str) -> Address | None:
    """Return the address that a host is written as, in any form that a resolver takes: 2130706433 is 127.0.0.1."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
