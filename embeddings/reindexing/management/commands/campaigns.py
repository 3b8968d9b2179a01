"""Command campaigns: show campaigns; pause, resume, cancel, roll back or settle one."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from rich.console import Console
from rich.table import Table

from embeddings.reindexing import campaign_commands, services
from embeddings.reindexing.models import Campaign, CampaignTenant
from vendors import tenant_argument

LATEST = 50
VERBS: Mapping[str, tuple[Callable[..., object], str]] = {
    "pause": (services.pause, "nothing more is begun"),
    "resume": (services.resume, "go on, with --budget if that was spent"),
    "cancel": (services.cancel, "end it; tenants that are cut over stay so"),
    "roll_back": (services.roll_back, "back to the old model, where it is still there"),
    "settle": (services.settle_now, "remove the old vectors now"),
}


class Command(BaseCommand):
    help = "Shows all campaigns, or one tenant by tenant, and pauses, resumes, cancels, rolls back or settles it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("campaign", nargs="?", help="its id")
        verbs = parser.add_mutually_exclusive_group()
        for name, (_, what) in VERBS.items():
            verbs.add_argument(f"--{name.replace('_', '-')}", action="store_const", const=name, dest="verb", help=what)
        verbs.add_argument("--accept", metavar="TENANT", help="cut a held tenant over all the same")
        parser.add_argument(
            "--budget", type=campaign_commands.parse_cents, metavar="CENTS", help="with --resume: the new budget"
        )
        parser.add_argument("--tenant", help="with --roll-back: only this one")
        campaign_commands.add_reason(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["campaign"] is None:
            if options["verb"] or options["accept"]:
                raise CommandError("Name the campaign.")
            self._print(_campaign_table())
            return
        campaign = _find_campaign(options["campaign"])
        with campaign_commands.as_command_errors(), transaction.atomic():
            _move(campaign, options)
        self._show(Campaign.objects.get(pk=campaign.pk))

    def _show(self, campaign: Campaign) -> None:
        progress = services.campaign_progress(campaign)
        reason = f" ({campaign.reason})" if campaign.reason else ""
        budget = "" if campaign.budget_cents is None else f" of {campaign.budget_cents:f}"
        self.stdout.write(
            f"{campaign.kind} to {campaign.target}: {campaign.state}{reason}. {progress.done} of {progress.documents}"
            f" documents, {progress.active} in the queue, {progress.failed} failed; {progress.cents:f}{budget} cents."
        )
        self._print(_tenant_table(campaign))

    def _print(self, table: Table) -> None:
        Console(file=self.stdout, width=150).print(table)  # type: ignore[arg-type]


def _move(campaign: Campaign, options: Mapping[str, Any]) -> None:
    """Run the action and write its audit entry, in one transaction."""
    if options["accept"]:
        accepted = services.accept(campaign, tenant_argument.parse_tenant(options["accept"]), by="command")
        campaign_commands.record_audit("accept", campaign, options["reason"], tenant_id=accepted.user_id)
    elif options["verb"]:
        more: dict[str, Any] = {}
        if options["verb"] == "resume":
            more = {"budget_cents": options["budget"]}
        elif options["verb"] == "roll_back" and options["tenant"]:
            more = {"user_id": tenant_argument.parse_tenant(options["tenant"])}
        VERBS[options["verb"]][0](campaign, by="command", **more)
        campaign_commands.record_audit(options["verb"], campaign, options["reason"], tenant_id=more.get("user_id"))


def _find_campaign(text: str) -> Campaign:
    try:
        campaign = Campaign.objects.filter(pk=UUID(text)).first()
    except ValueError:
        campaign = None
    if campaign is None:
        raise CommandError(f"There is no campaign {text!r}.")
    return campaign


def _campaign_table() -> Table:
    table = Table("campaign", "kind", "to", "state", "reason", "begun")
    for each in Campaign.objects.order_by("-created_at")[:LATEST]:
        started = f"{each.created_at:%Y-%m-%d %H:%M}"
        table.add_row(str(each.pk), each.kind, each.target, each.state, each.reason or "", started)
    return table


def _tenant_table(campaign: Campaign) -> Table:
    table = Table("tenant", "state", "documents", "cents", "recall", "reason")
    by_tenant = services.progress_by_tenant(campaign)
    for tenant in campaign.tenants.order_by("state", "user_id").iterator():
        progress = by_tenant[tenant.user_id]
        done = f"{progress.done} of {progress.documents}"
        reason = f"{tenant.reason}: {tenant.failed}" if tenant.failed else tenant.reason or ""
        table.add_row(str(tenant.user_id), tenant.state, done, f"{progress.cents:f}", _format_recall(tenant), reason)
    return table


def _format_recall(tenant: CampaignTenant) -> str:
    if not tenant.recall:
        return ""
    before, after = (
        "?" if tenant.recall.get(name) is None else f"{tenant.recall[name]:.3f}" for name in ("before", "after")
    )
    return f"{before} -> {after} ({tenant.recall['queries']})"
