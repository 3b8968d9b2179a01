"""A campaign from its start to its end, with real workers, a real vendor's bill, and kills on the way."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from embeddings import active_model
from embeddings.models import ActiveModel, DocumentChunk, ShadowVector
from embeddings.reindexing import services
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import HOSTED, OLD, drain
from embeddings.search.hybrid_search import search
from jobs import services as jobs
from jobs.models import UploadJob
from testing.cluster import running_cluster, wait_until
from testing.factories.pending_documents import SENTENCE, create_chunked_job
from testing.fakes.openai import KEY, OpenAIServer
from vendors.models import Purchase

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PASSAGES = 2  # of a document
POINTS = ["embeddings_buffered:before-commit", "feeding:begin"]


def uploaded(user_id: UUID) -> None:
    """Upload a document whose canaries are not its passages: a text sold twice is a passage."""
    seal = uuid.uuid4()
    again = "It is sealed as {} by the officers of {}."
    create_chunked_job(
        [f"{SENTENCE.format(n, seal, n)} {again.format(n, seal)}" for n in range(PASSAGES)], user_id=user_id
    )


def is_found(user_id: UUID) -> bool:
    rows = list(DocumentChunk.objects.filter(user_id=user_id).values_list("pk", "text"))
    return all(search(user_id=user_id, query=text, mode="vector", k=1)[0].chunk_id == pk for pk, text in rows)


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[Path]:
    for point in POINTS:
        (tmp_path / f"{point}~1").touch()
    yield tmp_path
    assert not list(tmp_path.glob("*~*")), "a death was never met"


def test_campaign_survives_kills_and_buys_nothing_twice(vendor: OpenAIServer, settings: Any, armed: Path) -> None:
    settings.CAMPAIGN_JOBS = 2
    ana, ben = uuid.uuid4(), uuid.uuid4()
    for user_id in (ana, ben) * 2:
        uploaded(user_id)
    drain()
    machine = {
        "JOBS_PIPELINES": "accessa.pipelines.PIPELINES",
        "JOBS_PERIODIC_SECONDS": 1,
        "JOBS_LEASE_SECONDS": 2,
        "CAMPAIGN_JOBS": 2,
        "EMBEDDER": OLD,
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": vendor.url,
        "ACCESSA_FAILPOINTS": armed,
    }

    vendor.delay = 0.3  # time enough to come in between
    campaign = services.start(kind="reembed", **HOSTED, by="sam")
    with running_cluster(workers=2, **machine) as running:
        wait_until(lambda: services.campaign_progress(campaign).done, seconds=90)
        services.pause(campaign, by="sam")
        assert is_found(ana)
        assert active_model.active_model(ana).model == "instant"
        uploaded(ana)
        jobs.notify_workers()
        (armed / "cut-over:before-commit~1").touch()
        services.resume(campaign, by="sam")
        wait_until(lambda: not running.main.is_running() or running.main.status() == "zombie", seconds=90)
    assert ActiveModel.objects.filter(embed_model=HOSTED["model"]).count() <= 1
    cut_off = Purchase.objects.filter(state="reserved").count()  # one tenant's cut-over died while another's job bought
    with running_cluster(workers=2, **machine):
        wait_until(lambda: states(campaign) == {"live"}, seconds=90)
        assert UploadJob.objects.filter(user_id=ana, campaign_id=None, state="done").count() == 3
        bought = Purchase.objects.filter(stage="embedding", state="settled")
        assert vendor.ledger.repeated <= PASSAGES * cut_off
        assert sum(bought.values_list("quantity", flat=True)) == tokens()
        assert set(Purchase.objects.values_list("campaign_id", flat=True)) == {campaign.pk}
        assert is_found(ana)
        assert is_found(ben)

        services.roll_back(campaign, user_id=ben, by="sam")
        assert is_found(ben)
        services.settle_now(campaign, by="sam")
        wait_until(lambda: states(campaign) == {"settled", "rolled_back"}, seconds=60)
        wait_until(lambda: Campaign.objects.get().state == "finished", seconds=60)
    assert (active_model.active_model(ana).model, active_model.active_model(ben).model) == (HOSTED["model"], "instant")
    assert not ShadowVector.objects.exists()
    assert is_found(ana)
    assert is_found(ben)


def states(campaign: Campaign) -> set[str]:
    return set(campaign.tenants.values_list("state", flat=True))


def tokens() -> int:
    return sum((meta or {})["tokens"] for meta in DocumentChunk.objects.values_list("meta", flat=True))
