"""Programs of `manage.py serve`: the API under gunicorn, the workers under django-q2, the consumer of statutes."""

import os
import sys
from pathlib import Path

from django.conf import settings

from accessa.server.address import Address
from accessa.server.supervisor import Program

REPOSITORY = Path(__file__).resolve().parents[2]


def programs(address: Address) -> list[Program]:
    # Signed URLs must lead back to where we listen.
    environment = {"PUBLIC_URL": os.environ.get("PUBLIC_URL") or address.url}
    api = ["gunicorn", "accessa.wsgi:application", "-c", "python:accessa.server.gunicorn_conf", "--bind", address.bind]
    running = [
        Program("the API", [sys.executable, "-m", *api], REPOSITORY, environment),
        Program("the workers", [sys.executable, "manage.py", "qcluster"], REPOSITORY, environment),
    ]
    if settings.SQS_QUEUE_URL:
        consume = [sys.executable, "manage.py", "consume_sqs"]
        running.append(Program("the statutes' consumer", consume, REPOSITORY, environment))
    return running
