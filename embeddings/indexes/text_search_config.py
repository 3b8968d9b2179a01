"""Text search configuration of a chunk by its language; English by default."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from accounts.system_tenant import SYSTEM_TENANT_ID

ENGLISH = "english"
# By the language in a chunk's meta. Another one changes embeddings.models.DocumentChunk.search too.
CONFIGURATIONS = {"es": "spanish"}


def config_of_chunk(meta: Mapping[str, Any]) -> str:
    """Return the configuration of a chunk with this ``meta``."""
    return CONFIGURATIONS.get(str(meta.get("language")), ENGLISH)


def configs_of_tenant(user_id: UUID) -> tuple[str, ...]:
    """Return the configurations of a tenant's chunks: those of statutes name their language, uploads do not."""
    return (ENGLISH, *CONFIGURATIONS.values()) if user_id == SYSTEM_TENANT_ID else (ENGLISH,)


def per_config_sql(sql: str, configurations: Sequence[str]) -> str:
    """Return ``sql`` on a chunk ``c`` with its ``{configuration}`` filled in by the chunk's language."""
    if len(configurations) == 1:
        return sql.format(configuration=configurations[0])
    cases = " ".join(
        f"WHEN '{language}' THEN {sql.format(configuration=configuration)}"
        for language, configuration in CONFIGURATIONS.items()
    )
    return f"CASE c.meta ->> 'language' {cases} ELSE {sql.format(configuration=ENGLISH)} END"
