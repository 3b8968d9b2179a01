"""Command that runs an SQS consumer, the worker of spec 004."""

import os
import signal
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import telemetry
from jobs.cluster import shared_state
from statutes.consumer.consumer import Consumer
from statutes.sqs import SETTING_BOUNDS


class Command(BaseCommand):
    help = "Takes the messages of SQS_QUEUE_URL and works on them until SIGTERM; out within 30 seconds."
    requires_system_checks = ("accessa",)  # as for qcluster

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--hold-only", action="store_true", help="hold the messages, and leave the work to the workers of qcluster"
        )
        parser.add_argument("--until-idle", action="store_true", help="stop when the queue has no message any more")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("SQS_QUEUE_URL", "STATUTES_BUCKET"):
            if not getattr(settings, name):
                raise CommandError(f"Set {name}.")
        for name, (least, most) in SETTING_BOUNDS.items():
            if not least <= getattr(settings, name) <= most:
                raise CommandError(f"{name} must be between {least} and {most}.")
        shared_state.start_cluster()
        telemetry.start_tracers()
        consumer = Consumer(works=not options["hold_only"], mortal=True, until_idle=options["until_idle"])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.interrupt())
        try:
            is_orderly = consumer.run()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if not is_orderly:
            os._exit(0)  # a hanging stage would keep the process alive; its job and messages were released
