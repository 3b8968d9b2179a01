"""AWS clients with a total deadline: requests signed by boto3 and sent over the deadline transport."""

import os
import threading
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
# Not true any more of a body that has been decoded and read to its end.
_WIRE_HEADERS = {"content-encoding", "content-length", "transfer-encoding"}
_client_lock = threading.Lock()  # the cache alone lets concurrent threads create one each


def create_client(service: str, *, region: str, endpoint: str | None, seconds: float) -> Any:
    """Return a client that tries once and raises httpx's errors, or botocore's ``ClientError`` for a refusal.

    Keys are those of AWS' own chain: the environment, a profile, the machine's role.
    """
    with _client_lock:
        return _client(service, region, endpoint, seconds, os.getpid())


@cache  # no more than a deployment has settings: one that is dropped would leave its connections open
def _client(service: str, region: str, endpoint: str | None, seconds: float, process: int) -> Any:
    """Create one a process: connections do not survive a fork."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=seconds,
        retries={"mode": "standard", "total_max_attempts": 1},  # the job machine retries
        user_agent_extra="accessa",
    )
    client = boto3.Session().client(service, region_name=region, endpoint_url=endpoint, config=config)
    http = httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds),
        timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        trust_env=False,
        headers={"accept-encoding": "identity"},
    )

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        headers = [
            (name, text.decode("latin-1") if isinstance(text, bytes) else text)
            for name, text in request.headers.items()
        ]
        response = http.request(request.method, request.url, headers=headers, content=request.body)
        decoded = {name: text for name, text in response.headers.items() if name.lower() not in _WIRE_HEADERS}
        return AWSResponse(request.url, response.status_code, decoded, _Body(response.content))

    # botocore's hook for another sender: urllib3, its own, bounds one read and not the call.
    client.meta.events.register("before-send", send)
    return client


class _Body(BytesIO):
    """The part of urllib3's response that botocore reads."""

    def stream(self, **_: Any) -> Any:
        return iter(lambda: self.read(64 * 1024), b"")
