"""Search engine of `manage.py serve` and `demo`: Milvus Lite on loopback, unless MILVUS_URI names a Milvus."""

import os
from importlib.util import find_spec

from django.conf import settings
from django.core.management.base import CommandError

from accessa.server.address import Address
from accessa.server.supervisor import Program
from embeddings.search_engine import maintenance, milvus_lite
from embeddings.search_engine.entries import EngineUnavailable, load_engine
from outbox import search_feed


def is_ours() -> bool:
    """Tell whether the engine is a server that this machine starts."""
    return search_feed.is_enabled() and not os.environ.get("MILVUS_URI")


def own_server() -> Program:
    """Return the server to run. Raises ``CommandError`` if it cannot."""
    if find_spec("milvus_lite") is None:
        raise CommandError("SEARCH_ENGINE=milvus needs the packages of requirements/optional.txt.")
    address = Address.parse(settings.MILVUS_URI.removeprefix("http://"))
    if not address.is_free():
        raise CommandError(f"{address.bind}, for Milvus Lite, is in use. Free it, or name a Milvus by MILVUS_URI.")
    return Program("the search engine", milvus_lite.command(settings.VAR / "milvus", address.port))


def is_ready() -> bool:
    """Tell whether a server of ours answers, or there is none; build what it has if it has nothing yet."""
    if not is_ours():
        return True
    try:
        if not load_engine().is_built():
            maintenance.rebuild()
    except EngineUnavailable:
        return False
    return True
