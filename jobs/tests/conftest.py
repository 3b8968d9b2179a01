"""Two tenants by id, and the pipelines of the tests."""

import uuid
from uuid import UUID

import pytest
from pytest_django import Settings


@pytest.fixture(autouse=True)
def _plans(settings: Settings) -> None:
    settings.JOBS_PIPELINES = "testing.stub_pipelines.PIPELINES"


@pytest.fixture
def ana() -> UUID:
    return uuid.UUID(int=0xA)


@pytest.fixture
def ben() -> UUID:
    return uuid.UUID(int=0xB)
