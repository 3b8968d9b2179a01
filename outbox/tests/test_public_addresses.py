"""Refused addresses of webhooks: private networks in every spelling, at every attempt, and names that rebind."""

import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from accounts.errors import ApiError
from outbox import error_codes, queue
from outbox.models import Message, WebhookEndpoint
from outbox.tests.conftest import Publish
from outbox.webhooks import delivery, public_addresses
from outbox.webhooks.endpoints import NewSecret
from outbox.webhooks.public_addresses import AddressRefused, check_url, resolve_allowed
from testing.fakes.callback_receiver import CallbackReceiver

PRIVATE = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
    "3fff::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1",
    "2002:a00:1::1", "2001:0:a00:1::1", "fec0::1", "feff::1",
)  # fmt: skip
PUBLIC = ("93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
Names = Callable[..., None]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Return a function that sets what names resolve to: a tuple of addresses for each of the look-ups."""

    def resolve_to(*answers: tuple[str, ...]) -> None:
        left, real = list(answers), socket.getaddrinfo

        def getaddrinfo(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
            if host[-1].isdigit():  # the connection itself, to an address
                return real(host, port, *args, **options)
            addresses = left.pop(0) if len(left) > 1 else left[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return resolve_to


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str, names: Names) -> None:
    names((address,))
    assert not public_addresses.is_public(ipaddress.ip_address(address))

    with pytest.raises(AddressRefused):
        resolve_allowed("hooks.example.com", 443, scheme="https")


def test_public_addresses_are_allowed_by_https_only(names: Names, settings: Settings) -> None:
    names(PUBLIC)
    assert resolve_allowed("hooks.example.com", 443, scheme="https") == list(PUBLIC)
    settings.WEBHOOKS_ALLOW_LOOPBACK = True

    with pytest.raises(AddressRefused):
        resolve_allowed("hooks.example.com", 8080, scheme="http")


def test_one_private_address_among_public_ones_is_refused(names: Names) -> None:
    names((PUBLIC[0], "10.0.0.1"))

    with pytest.raises(AddressRefused):
        resolve_allowed("hooks.example.com", 443, scheme="https")


def test_a_host_that_is_no_name_is_unreachable_and_no_bug() -> None:
    urls = [f"https://{'a' * 64}.com/", "https://[v1.a]/"]

    assert {delivery.post(url, "id", {}, []).code for url in urls} == {error_codes.WEBHOOK_UNREACHABLE}


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/", "ftp://hooks.example.com/", "hooks.example.com", "//hooks.example.com/", "https://",
        "https:///hook", "", "https://user@hooks.example.com/", "https://user:pass@hooks.example.com/",
        "https://@hooks.example.com/", "https://hooks.example.com\\@127.0.0.1/", "https://hooks.example.com:80/",
        "https://hooks.example.com:22/", "https://hooks.example.com:99999/", "https://hooks.example.com:x/",
        "https://hooks.example.com/#fragment", "https://hooks example.com/", "https://hooks.example.com/\r\nHost: a",
        "https://hooks.example.com/\0", "https://localhost/", "https://intranet/", "https://127.0.0.1/",
        "https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/", "https://10.0.0.1:8443/",
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[fe80::1%25eth0]/",
        "https://[fd00::1]/", "https://[nonsense]/", "https://hö.example.com/", "https://" + "a" * 2000 + ".com/",
        "https://" + "a" * 64 + ".com/", "https://hooks..example.com/", "https://.example.com/", "https://[v1.a]/",
        "https://hooks.example.com:0/", "https://[2606:4700::1111]x/", "https://[fec0::1]/",
    ],
)  # fmt: skip
def test_a_url_that_may_lead_elsewhere_is_invalid(url: str) -> None:
    with pytest.raises(ApiError, match="WEBHOOK_URL_INVALID"):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.com", "https://hooks.example.com:8443/a/b?key=1", "https://xn--h-3ga.example.com/",
     f"https://{PUBLIC[0]}/", f"https://[{PUBLIC[2]}]/hook"],
)  # fmt: skip
def test_a_public_https_url_is_valid(url: str) -> None:
    assert check_url(url) == url


def test_plain_http_is_valid_for_loopback_where_it_is_allowed(settings: Settings) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True

    assert check_url("http://127.0.0.1:8081/hook")
    with pytest.raises(ApiError):
        check_url("http://10.0.0.1:8081/hook")


@pytest.mark.django_db
def test_a_name_that_rebinds_to_this_machine_is_refused_at_the_attempt(
    endpoint: NewSecret, publish: Publish, receiver: CallbackReceiver, names: Names, settings: Settings
) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = False
    WebhookEndpoint.objects.update(url=f"https://hooks.example.com:{receiver.port}/hook")
    names(("127.0.0.1",))
    publish()

    queue.drain(time.monotonic() + 60)

    assert Message.objects.get().last_error == "WEBHOOK_ADDRESS_REFUSED"
    assert receiver.letters == []


@pytest.mark.django_db
def test_the_connection_goes_to_the_address_that_was_checked(
    endpoint: NewSecret, publish: Publish, receiver: CallbackReceiver, names: Names
) -> None:
    WebhookEndpoint.objects.update(url=f"http://hooks.example.com:{receiver.port}/hook")
    names(("127.0.0.1",), ("10.0.0.1",))  # a second look-up would lead elsewhere
    publish()

    queue.drain(time.monotonic() + 60)

    assert Message.objects.get().state == "delivered"
    assert receiver.letters[0].headers["host"] == f"hooks.example.com:{receiver.port}"
