"""Free TCP ports below the ephemeral range."""

import random
import socket
from contextlib import suppress

BELOW_EPHEMERAL = 15_000, 30_000


def free_port() -> int:
    """Return a port below those of outgoing connections: one of these may take it before it is listened at."""
    while True:
        port = random.SystemRandom().randint(*BELOW_EPHEMERAL)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
