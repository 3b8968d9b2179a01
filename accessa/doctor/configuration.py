"""What can be known without asking anybody: all system checks, and those of a deployment where this is one."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.checks import run_checks

from accessa import checks
from accessa.checks.conflicts import is_local
from accessa.doctor.database import told
from accessa.doctor.runner import Finding


def consistent() -> Iterator[Finding]:
    yield from (told(message) for message in run_checks() if not message.is_silenced())


def deployed() -> Iterator[Finding]:
    """At an address that others reach, the defaults of a laptop are faults."""
    if not is_local(settings.PUBLIC_URL):
        yield from (told(message) for message in checks.check_deployment(app_configs=None))
