"""Commands `manage.py budget` and `manage.py bill`."""

import io
import uuid
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from accounts.audit.models import AuditEntry
from testing.personas import Person
from vendors import ledger
from vendors.models import Budget

pytestmark = pytest.mark.django_db


def run(*args: str) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def buy(person: Person, cents: int, campaign_id: uuid.UUID | None = None) -> uuid.UUID:
    return ledger.reserve(
        user_id=person.id,
        vendor="llamaparse",
        model="cost_effective",
        unit="pages",
        quantity=12,
        cents=Decimal(cents),
        stage="parsing",
        campaign_id=campaign_id,
    )


def test_a_budget_is_shown_set_and_lifted(ana: Person) -> None:
    buy(ana, 4)

    assert "no limit and has spent 4.000000 cents today" in run("budget", "ana@example.org")
    assert "may spend 10.500000 cents a day" in run("budget", str(ana.id), "--cents-per-day", "10.5")
    assert "has 6.500000 left" in run("budget", "ANA@example.org")
    assert "no limit" in run("budget", str(ana.id), "--none")


def test_setting_a_budget_is_audited_and_showing_it_is_not(ana: Person) -> None:
    run("budget", str(ana.id))
    run("budget", str(ana.id), "--cents-per-day", "10.5")
    run("budget", str(ana.id), "--default", "--reason", "INC-7")
    with pytest.raises(CommandError, match="Say why"):
        run("budget", str(ana.id), "--none", "--reason", " ")

    entries = AuditEntry.objects.filter(tenant_id=ana.id, action="budgets.set", actor="command line")
    assert {(entry.reason, entry.details["cents_per_day"]) for entry in entries} == {
        ("by command", "10.500000"), ("INC-7", None),
    }  # fmt: skip
    assert not Budget.objects.exists()


def test_the_default_is_the_settings(ana: Person, settings: object) -> None:
    settings.TENANT_DAILY_CENTS = 7.0  # type: ignore[attr-defined]
    run("budget", str(ana.id), "--none")

    assert "may spend 7.0 cents" in run("budget", str(ana.id), "--default")


def test_a_tenant_of_supabase_needs_no_row_here() -> None:
    assert "may spend 5.000000" in run("budget", str(uuid.uuid4()), "--cents-per-day", "5")


@pytest.mark.parametrize("cents", ["0", "-1", "nan", "inf", "many", "1e30", "0.0000001", ""])
def test_an_invalid_budget_is_refused(cents: str, ana: Person) -> None:
    with pytest.raises(CommandError, match=r"\w+ .*\."):
        run("budget", str(ana.id), f"--cents-per-day={cents}")


@pytest.mark.parametrize(
    "args",
    [
        ("budget", "nobody@example.org"),
        ("budget", "nobody"),
        ("bill", "--user", "nobody"),
        ("bill", "--day", "yesterday"),
        ("bill", "--document", "plan.pdf"),
        ("bill", "--by", "colour"),
        ("budget", "ana@example.org", "--none", "--cents-per-day", "3"),
    ],
    ids=" ".join,
)
def test_invalid_arguments_are_refused(args: tuple[str, ...], ana: Person) -> None:
    with pytest.raises(CommandError):
        run(*args)


@pytest.mark.parametrize("by", ledger.GROUPS)
def test_the_bill_shows_what_is_unsettled_too(by: str, ana: Person) -> None:
    ledger.settle(buy(ana, 9), quantity=12, cents=Decimal(3))
    buy(ana, 2)

    shown = run("bill", "--user", "ana@example.org", "--by", by)

    assert "3.000000" in shown
    assert "2.000000" in shown
    assert "24" in shown


def test_the_bill_shows_campaigns_apart(ana: Person) -> None:
    campaign_id = uuid.uuid4()
    buy(ana, 9)
    buy(ana, 2, campaign_id)

    lines = [line.split() for line in run("bill").splitlines()]

    words = [" ".join(word for word in line if word not in "│┃") for line in lines if line]
    (own,) = [number for number, line in enumerate(words) if line.endswith("1 12 0.000000 9.000000")]
    heading, campaigns = words[own + 2 : own + 4]
    assert heading == f"campaign {campaign_id}"
    assert campaigns.endswith("1 12 0.000000 2.000000")


def test_an_empty_bill_says_so(ana: Person) -> None:
    assert run("bill", "--user", str(ana.id)) == "Nothing was bought.\n"
