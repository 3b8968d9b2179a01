"""Programs of `manage.py serve`: the API under gunicorn, the workers under django-q2, the MCP server, the consumer."""

import os
import secrets
import sys
from pathlib import Path

from django.conf import settings

from accessa.server import search_engine
from accessa.server.address import Address
from accessa.server.supervisor import Program
from accounts.models import User

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without those that look alike
REPOSITORY = Path(__file__).resolve().parents[2]


def mcp_url(mcp: Address) -> str:
    """Return where assistants reach the MCP server: behind a proxy, at PUBLIC_URL."""
    return f"{os.environ.get('PUBLIC_URL') or mcp.url}/mcp"


def first_account_code(address: Address) -> str:
    """Return a code for the page of the first account; "" if there is an account, or others may reach the address."""
    is_local = address.host == "localhost" or address.host.startswith("127.") or address.host == "::1"
    if os.environ.get("PUBLIC_URL") or not is_local or User.objects.exists():
        return ""
    letters = "".join(secrets.choice(CODE_LETTERS) for _ in range(8))
    return f"{letters[:4]}-{letters[4:]}"


def programs(address: Address, mcp: Address | None = None, code: str = "") -> list[Program]:
    """Return what to run; with ``mcp`` the MCP server at that address, too; with ``code`` the first account's page."""
    # Signed URLs must lead back to where we listen.
    environment = {"PUBLIC_URL": os.environ.get("PUBLIC_URL") or address.url}
    api = ["gunicorn", "accessa.wsgi:application", "-c", "python:accessa.server.gunicorn_conf", "--bind", address.bind]
    running = [
        Program("the API", [sys.executable, "-m", *api], REPOSITORY, environment | {"FIRST_ACCOUNT_CODE": code}),
        Program("the workers", [sys.executable, "manage.py", "qcluster"], REPOSITORY, environment),
    ]
    if mcp is not None:
        own = {"MCP_URL": os.environ.get("MCP_URL") or mcp_url(mcp)}
        serve_mcp = [sys.executable, "manage.py", "serve_mcp", "--bind", mcp.bind]
        running.append(Program("the MCP server", serve_mcp, REPOSITORY, environment | own))
    if search_engine.is_ours():
        running.append(search_engine.own_server())
    if settings.SQS_QUEUE_URL:
        consume = [sys.executable, "manage.py", "consume_sqs"]
        running.append(Program("the statutes' consumer", consume, REPOSITORY, environment))
    return running
