"""Optional receivers of errors (Sentry) and traces (OpenTelemetry), loaded only where a setting names one."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from jobs import telemetry

REMEDY = "pip install -r requirements/optional.txt, or unset {setting}."


class Receiver(NamedTuple):
    setting: str
    package: str
    module: str


RECEIVERS = (
    Receiver("SENTRY_DSN", "sentry_sdk", "accessa.observability.sentry"),
    Receiver(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "opentelemetry.exporter.otlp.proto.http", "accessa.observability.opentelemetry"
    ),
)


def register_receivers() -> None:
    """Add the configured receivers to ``jobs.telemetry``. Each is started by its process's ``start_tracers``."""
    for receiver in RECEIVERS:
        if getattr(settings, receiver.setting):
            telemetry.add_tracer(LazyReceiver(receiver))


def check_packages(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return [
        Error(f"{receiver.setting} is set and {receiver.package} is not installed.",
              hint=REMEDY.format(setting=receiver.setting), id="accessa.E120")
        for receiver in RECEIVERS if getattr(settings, receiver.setting) and not _is_installed(receiver.package)
    ]  # fmt: skip


class LazyReceiver:
    """A receiver that is loaded and started in the process that it serves: threads do not survive a fork."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._tracer: Any = None

    def start(self) -> None:
        receiver = self._receiver
        if not _is_installed(receiver.package):
            remedy = REMEDY.format(setting=receiver.setting)
            raise ImproperlyConfigured(f"{receiver.setting} is set and {receiver.package} is not installed: {remedy}")
        self._tracer = import_module(receiver.module).start(getattr(settings, receiver.setting))

    def span(self, name: str, attributes: dict[str, str | int | float], parent: str) -> Any:
        return self._tracer.span(name, attributes, parent) if self._tracer else None

    def report_error(self, error: BaseException) -> None:
        if self._tracer:
            self._tracer.report_error(error)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even its parent
        return False
