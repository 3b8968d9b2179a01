"""Cut tenants' documents anew by another chunker."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from campaigns import asking, services
from campaigns.models import Campaign


class Command(BaseCommand):
    help = (
        "Cuts documents anew from their stored parses; no parse is bought. Each document's passages are replaced in one"
        " transaction. Returns at once: the workers do it. See `campaigns` for how far it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--chunker", required=True, metavar="NAME@VERSION")
        asking.add_limits(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = {
            "kind": Campaign.Kind.RECHUNK,
            "chunker": options["chunker"],
            "user_ids": asking.named(options["tenant"]),
        }
        with asking.refusals():
            if options["dry_run"]:
                self.stdout.write(asking.told(services.estimate(**wanted)))
                return
            with transaction.atomic():
                campaign = services.start(**wanted, budget_cents=options["budget"], by="command")
                asking.write_down("start", campaign, options["reason"], target=campaign.target)
        self.stdout.write(asking.begun(campaign))
        if options["chunker"] != settings.CHUNKER:
            self.stdout.write(asking.reminder("CHUNKER", options["chunker"]))
