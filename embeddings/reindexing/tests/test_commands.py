"""The commands: what they say, and what they say to bad input."""

import json
import uuid
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from accounts.audit.models import AuditEntry
from documents.models import Document
from embeddings import active_model
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import MODEL, OLD_MODEL, Fill, run_campaigns
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
REEMBED = ["reembed", "--model", MODEL["model"], "--version", "1"]


def command_output(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def entries() -> set[tuple[str, str, str]]:
    return set(AuditEntry.objects.filter(actor="command line").values_list("action", "reason", "object_id"))


def test_dry_run_prints_an_estimate_and_starts_nothing(fill_tenant: Fill) -> None:
    fill_tenant(2, 3)

    answer = command_output(*REEMBED, "--dry-run")

    assert "1 tenants, 2 documents, 6 passages" in answer
    assert "cents" in answer
    assert "hours" in answer
    assert not Campaign.objects.exists()


def test_campaign_is_started_rolled_back_and_shown(fill_tenant: Fill, tmp_path: Path) -> None:
    ana, ben = fill_tenant(1, 2), fill_tenant(1, 2)
    canary = {"query": "Who pays?", "document_id": str(Document.objects.filter(user_id=ana)[0].pk)}
    (tmp_path / "asked.jsonl").write_text(f"{json.dumps(canary)}\n\n")

    answer = command_output(
        *REEMBED,
        "--tenant",
        str(ana),
        "--budget",
        "5",
        "--keep",
        "2",
        "--canaries",
        f"{tmp_path}/asked.jsonl",
        "--tolerance",
        "0.5",
    )
    campaign = Campaign.objects.get()
    run_campaigns(1)
    shown = command_output("campaigns", str(campaign.pk))
    back = command_output("campaigns", str(campaign.pk), "--roll-back", "--tenant", str(ana))

    assert f"manage.py campaigns {campaign.pk}" in answer
    assert "without any that run, nothing moves" in answer
    assert (int(campaign.budget_cents or 0), campaign.keep_seconds, len(campaign.canaries or [])) == (5, 7200.0, 1)
    assert campaign.tolerance == 0.5
    assert "1 of 1 documents" in shown
    assert f"{ana}" in shown
    assert "live" in shown
    assert "1.000 -> 1.000 (1)" in shown
    assert f"{ben}" not in shown
    assert "rolled_back" in back
    assert active_model.active_model(ana).model == OLD_MODEL["model"]
    assert str(campaign.pk) in command_output("campaigns")


def test_options_pause_resume_and_cancel_a_campaign(fill_tenant: Fill) -> None:
    fill_tenant(1, 1)
    command_output(*REEMBED)
    campaign_id = str(Campaign.objects.get().pk)

    assert "paused (BY_STAFF)" in command_output("campaigns", campaign_id, "--pause")
    assert ": running." in command_output("campaigns", campaign_id, "--resume", "--budget", "7")
    assert "of 7" in command_output("campaigns", campaign_id)
    run_campaigns(1)
    command_output("campaigns", campaign_id, "--settle")
    run_campaigns(1)
    assert ": finished." in command_output("campaigns", campaign_id)
    assert entries() == {
        (f"campaigns.{verb}", "by command", campaign_id) for verb in ("start", "pause", "resume", "settle")
    }


def test_rechunk_names_the_setting_for_new_documents(ana: Person) -> None:
    ana.ingest(plan_pdf("drugs"))

    assert "passages" in command_output("rechunk", "--chunker", "markdown-simple@2", "--dry-run")
    assert not AuditEntry.objects.exists()
    assert "CHUNKER is 'markdown-simple@3'" in command_output(
        "rechunk", "--chunker", "markdown-simple@2", "--reason", "INC-7"
    )
    assert entries() == {("campaigns.start", "INC-7", str(Campaign.objects.get().pk))}


def test_tenant_is_pinned_by_email_and_unpinned(ana: Person) -> None:
    model = f"{OLD_MODEL['model']}@1"

    assert f"{ana.id} is pinned to {model}" in command_output("pin", "ana@example.org", model)
    assert "free" in command_output("pin", str(ana.id), "--unpin", "--reason", "INC-7")
    assert entries() == {("tenants.pin", "by command", str(ana.id)), ("tenants.unpin", "INC-7", str(ana.id))}


def test_invalid_input_is_explained(fill_tenant: Fill, tmp_path: Path) -> None:
    ana = str(fill_tenant(1, 1))
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "odd.jsonl").write_text("[1]")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    wrong = [
        (["reembed"], "--model"),
        (["reembed", "--model", "x", "--version", "1"], "UNKNOWN_MODEL"),
        ([*REEMBED, "--budget", "lots"], "not a number"),
        ([*REEMBED, "--budget", "NaN"], "0 to"),
        ([*REEMBED, "--keep", "nan"], "KEEP_OUT_OF_RANGE"),
        ([*REEMBED, "--keep", "-1"], "KEEP_OUT_OF_RANGE"),
        ([*REEMBED, "--keep", "1e300"], "KEEP_OUT_OF_RANGE"),
        ([*REEMBED, "--tolerance", "1.5"], "TOLERANCE_OUT_OF_RANGE"),
        ([*REEMBED, "--tolerance", "nan"], "TOLERANCE_OUT_OF_RANGE"),
        ([*REEMBED, "--tenant", ana, "--tenant", str(uuid.UUID(int=7))], str(uuid.UUID(int=7))),
        ([*REEMBED, "--tenant", "nobody@example.org"], "nobody@example.org"),
        ([*REEMBED, "--canaries", f"{tmp_path}/none.jsonl"], "cannot be read"),
        ([*REEMBED, "--canaries", f"{tmp_path}/bad.jsonl"], "Line 1"),
        ([*REEMBED, "--canaries", f"{tmp_path}/odd.jsonl"], "CANARIES_INVALID"),
        ([*REEMBED, "--canaries", f"{tmp_path}/binary.jsonl"], "cannot be read"),
        (["rechunk", "--chunker", "axe"], "UNKNOWN_CHUNKER"),
        ([*REEMBED, "--reason", " "], "REASON_REQUIRED"),
        (["rechunk"], "--chunker"),
        (["campaigns", "x"], "no campaign"),
        (["campaigns", str(uuid.uuid4())], "no campaign"),
        (["campaigns", "--pause"], "Name the campaign"),
        (["pin", ana], "MODEL@VERSION"),
        (["pin", ana, "nothing"], "UNKNOWN_MODEL"),
        (["pin", ana, f"{MODEL['model']}@1"], "VECTORS_MISSING"),
        (["pin", ana, "--unpin"], "NOT_FOUND"),
    ]

    for command, sentence in wrong:
        with pytest.raises(CommandError, match=sentence):
            command_output(*command)
    assert not Campaign.objects.exists()
