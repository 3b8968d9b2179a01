"""Clients of AWS' services whose every call is over in time: signed by boto3, sent by the transport of all vendors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import Any

import boto3
import httpcore
import httpx
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config

from vendors import http_deadline

CONNECT_SECONDS = 5.0
# Of a body that has been decoded, and read to its end, neither is true any more.
_OF_THE_WIRE = {"content-encoding", "content-length", "transfer-encoding"}


def create_client(service: str, *, region: str, endpoint: str | None, seconds: float) -> Any:
    """Return a client that tries once and raises what httpx raises, or botocore's ``ClientError`` for a refusal.

    Keys are those of AWS' own chain: the environment, a profile, the machine's role.
    """
    with _making:
        return _client(service, region, endpoint, seconds, os.getpid())


_making = threading.Lock()  # the cache alone lets threads that come together make one each


@cache  # no more than a deployment has settings: one that is dropped would leave its connections open
def _client(service: str, region: str, endpoint: str | None, seconds: float, process: int) -> Any:
    """One a process: connections do not survive a fork."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=seconds,
        retries={"mode": "standard", "total_max_attempts": 1},  # the machine is what tries again
        user_agent_extra="accessa",
    )
    made = boto3.Session().client(service, region_name=region, endpoint_url=endpoint, config=config)
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    http = httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds),
        timeout=timeout,
        trust_env=False,
        headers={"accept-encoding": "identity"},
    )

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        return _sent(http, request)

    made.meta.events.register("before-send", send)
    return made


def _sent(http: httpx.Client, request: AWSPreparedRequest) -> AWSResponse:
    headers = [(name, _text(value)) for name, value in request.headers.items()]
    answer = http.request(request.method, request.url, headers=headers, content=request.body)
    kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_THE_WIRE}
    return AWSResponse(request.url, answer.status_code, kept, _Body(answer.content))


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Body(BytesIO):
    """What botocore reads of a response of urllib3's."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        while piece := self.read(64 * 1024):
            yield piece
