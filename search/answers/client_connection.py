"""Connection of a request's client: whether it is still open, and how much is sent without waiting for its reader."""

import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# An answer of the longest sentences and citations has less: writing it waits for no reader.
SEND_BUFFER_BYTES = 512 * 1024


class ClientConnection:
    """The socket that gunicorn names in its environment; under another server every client counts as connected."""

    def __init__(self, environment: Mapping[str, Any]) -> None:
        self._socket: socket.socket | None = environment.get("gunicorn.socket")

    def is_open(self) -> bool:
        """Tell whether the client has not closed its side. What it has sent is left where it is."""
        if self._socket is None:
            return True
        try:
            # Not MSG_DONTWAIT: on a socket with a timeout Python waits for it all the same.
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0) or bool(self._socket.recv(1, socket.MSG_PEEK))
        except (OSError, ValueError):  # closed
            return False

    def fit_send_buffer(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
