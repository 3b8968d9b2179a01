"""Command pin: pin a tenant to an embedding model, or unpin it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.audit import log
from embeddings import active_model
from embeddings.reindexing import campaign_commands, services
from vendors import tenant_argument


class Command(BaseCommand):
    help = "Pins a tenant to a model, whose vectors must all be there; no campaign moves it until it is unpinned."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", help="the tenant's UUID or e-mail, or laws for the statutes")
        parser.add_argument("model", nargs="?", metavar="MODEL@VERSION")
        parser.add_argument("--unpin", action="store_true")
        campaign_commands.add_reason(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = tenant_argument.parse_tenant(options["tenant"])
        if bool(options["model"]) == options["unpin"]:
            raise CommandError("Name a model as MODEL@VERSION, or say --unpin.")
        with campaign_commands.as_command_errors(), transaction.atomic():
            if options["unpin"]:
                services.unpin(user_id, by="command")
            else:
                model, _, version = options["model"].rpartition("@")
                services.pin(user_id, model=model, version=version, by="command")
            log.record_action(
                by=None, action=f"tenants.{'unpin' if options['unpin'] else 'pin'}", reason=options["reason"],
                object_type="tenant", object_id=user_id, tenant_id=user_id, model=options["model"] or "",
            )  # fmt: skip
        model_now = active_model.active_model(user_id).label
        held = "free to be moved from" if options["unpin"] else "pinned to"
        self.stdout.write(f"{user_id} is {held} {model_now}.")
