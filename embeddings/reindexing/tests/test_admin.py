"""Campaigns in the admin: the price before the button, and buttons for those who may press them."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from embeddings.embedders import registry
from embeddings.models import ActiveModel
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import Fill

pytestmark = pytest.mark.django_db

ADD = reverse("admin:reindexing_campaign_add")


def staff(*permissions: str) -> Client:
    user = User.objects.create(username="sam", email="sam@example.com", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def sam(db: None) -> Client:
    return staff("view_campaign", "add_campaign", "change_campaign")


@pytest.fixture
def form_data(fill_tenant: Fill) -> dict[str, Any]:
    target = registry.get_embedder("local")
    return {
        "target": f"reembed {target.model}@{target.version}",
        "tenants": str(fill_tenant()),
        "keep_hours": "24",
        "reason": "INC-7",
    }


def start_campaign(sam: Client, form_data: dict[str, Any]) -> Campaign:
    sam.post(ADD, {**form_data, "start": "yes"})
    return Campaign.objects.get()


def press(client: Client, campaign: Campaign, move: str, **more: str) -> Any:
    payload = {"move": move, "reason": "INC-7", **more}
    return client.post(reverse("admin:reindexing_campaign_move", args=[campaign.pk]), payload)


def test_start_form_shows_the_price_before_starting(sam: Client, form_data: dict[str, Any]) -> None:
    page = sam.post(ADD, {**form_data, "price": "yes"}).content.decode()

    assert "<th>Passages</th><td>6</td>" in page
    assert "Start for about" in page
    assert not Campaign.objects.exists()


def test_start_button_starts_a_campaign_and_shows_its_progress(sam: Client, form_data: dict[str, Any]) -> None:
    campaign = start_campaign(sam, form_data)

    page = sam.get(reverse("admin:reindexing_campaign_change", args=[campaign.pk])).content.decode()
    listed = sam.get(reverse("admin:reindexing_campaign_changelist")).content.decode()

    assert form_data["tenants"] in page
    assert "of 2 documents" in page
    assert "wordllama" in listed
    assert "1 working" in listed


def test_buttons_change_the_campaign_and_show_errors(sam: Client, form_data: dict[str, Any]) -> None:
    campaign = start_campaign(sam, form_data)
    states = []

    for move in ("pause", "resume", "settle", "cancel"):
        press(sam, campaign, move)
        states.append(Campaign.objects.get().state)

    page = sam.get(reverse("admin:reindexing_campaign_changelist")).content.decode()
    assert states == ["paused", "running", "running", "cancelled"]
    assert "CAMPAIGN_STATE" in page  # there was nothing to settle


def test_button_needs_a_reason_that_is_audited(sam: Client, form_data: dict[str, Any]) -> None:
    refused = sam.post(ADD, {**form_data, "reason": " ", "start": "yes"}).content.decode()
    assert "REASON_REQUIRED" in refused
    campaign = start_campaign(sam, form_data)

    press(sam, campaign, "pause", reason="")
    press(sam, campaign, "settle")  # refused: there is nothing to settle
    press(sam, campaign, "pause", reason="  the vendor\n is slow ")

    written = AuditEntry.objects.order_by("at").values_list("action", "actor", "reason", "object_id")
    assert list(written) == [
        ("campaigns.start", "sam", "INC-7", str(campaign.pk)),
        ("campaigns.pause", "sam", "the vendor is slow", str(campaign.pk)),
    ]


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("tenants", "not-an-id", "not the id of a tenant"),
        ("tenants", str(UUID(int=7)), "NOTHING_TO_DO"),
        ("target", "reembed gone@1", "Select a valid choice"),
        ("budget_cents", "-1", "greater than or equal to 0"),
        ("budget_cents", "1e30", "less than or equal to"),
        ("keep_hours", "x", "Enter a number"),
    ],
)
def test_start_errors_are_explained(
    sam: Client, form_data: dict[str, Any], field: str, text: str, message: str
) -> None:
    answer = sam.post(ADD, {**form_data, field: text, "start": "yes"})

    assert answer.status_code == 200
    assert message in answer.content.decode()
    assert not Campaign.objects.exists()


def test_viewers_have_no_buttons(form_data: dict[str, Any]) -> None:
    campaign = Campaign.objects.create(kind="reembed", embed_model="m", embed_version="1", created_by="x")
    looker = staff("view_campaign")

    page = looker.get(reverse("admin:reindexing_campaign_change", args=[campaign.pk]))
    answers = [looker.get(ADD), looker.post(ADD, {**form_data, "start": "yes"}), press(looker, campaign, "pause")]

    assert page.status_code == 200
    assert 'name="move"' not in page.content.decode()
    assert [answer.status_code for answer in answers] == [403] * 3
    assert Campaign.objects.get().state == "running"


def test_get_changes_nothing_and_strangers_see_nothing(sam: Client, form_data: dict[str, Any]) -> None:
    campaign = start_campaign(sam, form_data)
    address = reverse("admin:reindexing_campaign_move", args=[campaign.pk])

    linked, stranger = sam.get(address + "?move=cancel"), Client().post(address, {"move": "cancel"})

    assert (linked.status_code, stranger.status_code) == (403, 302)
    assert Campaign.objects.get().state == "running"
    assert not ActiveModel.objects.filter(embed_model__startswith="wordllama").exists()
