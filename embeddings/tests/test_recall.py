"""`manage.py recall`: what an index misses, in a table without a word of any tenant."""

from io import StringIO
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from embeddings import hnsw_indexes
from embeddings.embedders.registry import EmbeddingModel
from embeddings.management.commands import recall
from embeddings.models import ActiveModel
from testing.factories import vectors

pytestmark = pytest.mark.django_db


def run(*args: str) -> str:
    out = StringIO()
    call_command("recall", *args, stdout=out)
    return out.getvalue()


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if "│" in line]


def test_recall_is_reported_by_size_of_tenant(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(recall, "CLASSES", (100, 2**60))
    settings.SEARCH_EXACT_PASSAGES = 20
    rows = vectors.generate_vectors(50)
    owners = [uuid4() for _ in range(5)]
    for owner, size in zip(owners, (20, 20, 20, 21, 50), strict=True):
        vectors.store_vectors(owner, rows[:size], texts=[f"secret {at}" for at in range(size)])

    table = run("--tenants", "2", "--queries", "7", "--k", "5")

    assert [row[:5] for row in cells(table)] == [
        ["up to 20", "2", "14", "1.0000", "1.00"],
        ["up to 100", "2", "14", "1.0000", "1.00"],
    ]
    assert "recall@5" in table
    assert "secret" not in table
    assert not any(str(owner) in table for owner in owners)


def test_recall_of_one_tenant_after_a_cut_over() -> None:
    new = EmbeddingModel("new", "1", shadowed=True)
    owner = uuid4()
    stored = vectors.store_vectors(owner, vectors.generate_vectors(30))
    vectors.store_vectors(uuid4(), vectors.generate_vectors(30))
    ActiveModel.objects.filter(pk=owner).update(embed_model="new", embed_version="1", shadowed=True)
    vectors.store_shadow_vectors(stored, vectors.generate_vectors(30, seed=1), live=new)

    (row,) = cells(run("--tenant", str(owner)))

    assert row[:5] == ["up to 1,000", "1", "20", "1.0000", "1.00"]


def test_recall_below_the_goal_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors.store_vectors(uuid4(), vectors.generate_vectors(30))
    monkeypatch.setattr(recall, "GOAL", 1.01)

    with pytest.raises(SystemExit) as ended:
        run()

    assert ended.value.code == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--queries", "0"], "must be 1 or more"),
        (["--k", "many"], "invalid count value: 'many'"),
        (["--tenants", "-1"], "must be 1 or more"),
        (["--tenant", "ana"], "invalid UUID value: 'ana'"),
        (["--seed", "-1"], "must be 0 or more"),
        (["--tenant", str(uuid4())], "There are no findable passages to measure with."),
        ([], "There are no findable passages to measure with."),
    ],
)
def test_invalid_options_are_explained(args: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        run(*args)


def test_poor_index_is_reported(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.SEARCH_EXACT_PASSAGES = 100
    poor = hnsw_indexes.CREATE.replace("CONCURRENTLY", "").replace("WHERE", "WITH (m = 2, ef_construction = 4) WHERE")
    monkeypatch.setattr(hnsw_indexes, "CREATE", poor)
    owner = uuid4()
    vectors.store_vectors(owner, vectors.normalize_vectors(np.random.default_rng(1).normal(size=(500, 1536))))
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    hnsw_indexes._build_if_needed(owner, vectors.MODEL, vectors.VERSION, "document_chunks")
    out = StringIO()

    with pytest.raises(SystemExit):
        call_command("recall", stdout=out)

    assert 0 < float(cells(out.getvalue())[0][3]) < 0.9
