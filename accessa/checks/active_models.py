"""System check of the embedding models: each that tenants are searched with has its embedder."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from embeddings.embedders import registry
from jobs.outcomes import Permanent, Retryable, Wait

ACTIVE_MODELS = "SELECT embed_model, embed_version, count(*) FROM active_models GROUP BY 1, 2 ORDER BY 1, 2"


def check_embedding_models(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Run where a database is named. An embedder that does not answer is a warning: `doctor` says why."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('active_models') IS NOT NULL")
        if not cursor.fetchone()[0]:  # not migrated
            return []
        cursor.execute(ACTIVE_MODELS)
        models = cursor.fetchall()
    try:
        return [
            Warning(
                f"No embedder for {model}@{version}, with which {tenants} tenants are searched.",
                hint="Configure that model again, then move them: manage.py reembed --model … --version …",
                id="accessa.W003",
            )
            for model, version, tenants in models
            if registry.find_embedder(registry.EmbeddingModel(model, version)) is None
        ]
    except (ImproperlyConfigured, Permanent, Wait, Retryable):
        says = "EMBEDDER does not answer: it is unknown whether it embeds queries for all tenants."
        return [Warning(says, hint="Run: manage.py doctor --only embedder", id="accessa.W004")]
