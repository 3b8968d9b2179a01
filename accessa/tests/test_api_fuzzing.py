"""Fuzzing of the API against its schema."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from schemathesis import Case

from documents.tags import create_tag
from testing.fuzzing import SECRET, World, schema, shared_connection
from testing.personas import Person, plan_pdf, upload_request
from testing.sizes import size

pytestmark = pytest.mark.slow
CASES = size(10, full=1000)  # and those that schemathesis derives from each parameter's limits


@pytest.fixture
def world(ana: Person, platform: Person, settings: Any) -> Iterator[World]:
    settings.BRAIN_API_SECRET = SECRET
    settings.UPLOADS_PER_DAY = settings.POLLS_PER_MINUTE = settings.UPLOAD_REQUESTS_PER_MINUTE = 1_000_000
    settings.PAGE_VIEWS_PER_MINUTE = settings.SEARCHES_PER_MINUTE = 1_000_000
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    uploaded = ana.ingest(plan_pdf("therapy"))
    signed = ana.post("/upload", upload_request(b"%PDF-")).json()["signed_url"]
    tag, _ = create_tag(user_id=ana.id, name="2026")
    with shared_connection():
        ids = (str(uploaded.document_id), str(uploaded.job_id))
        yield World(ana.token, str(ana.id), platform.token, *ids, signed, str(tag.pk))


api = schema(CASES)


# Parametrized, if only by one: without it all operations share a node id, and xdist runs one test of each id.
@pytest.mark.parametrize("world", ["api"], indirect=True)
@api.parametrize()
@settings(max_examples=CASES, database=None, suppress_health_check=list(HealthCheck))
def test_no_request_gets_an_answer_that_the_schema_does_not_know(case: Case[Any], world: World) -> None:
    world.ask(case)
