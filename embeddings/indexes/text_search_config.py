"""How the words of a passage are read: by the text search configuration of its language, English where none is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from accounts.system_tenant import SYSTEM_TENANT_ID

ENGLISH = "english"
# By what a passage's meta says of its language. Another one changes embeddings.models.DocumentChunk.search too.
CONFIGURATIONS = {"es": "spanish"}


def config_of_chunk(meta: Mapping[str, Any]) -> str:
    """Return the configuration by which a passage with this ``meta`` is read."""
    return CONFIGURATIONS.get(str(meta.get("language")), ENGLISH)


def configs_of_tenant(user_id: UUID) -> tuple[str, ...]:
    """Return those by which a tenant's passages may be read: uploads tell no language, laws do."""
    return (ENGLISH, *CONFIGURATIONS.values()) if user_id == SYSTEM_TENANT_ID else (ENGLISH,)


def per_config_sql(sql: str, configurations: Sequence[str]) -> str:
    """Return SQL on a passage ``c``: ``sql``, whose ``{configuration}`` is the one of the passage's language."""
    if len(configurations) == 1:
        return sql.format(configuration=configurations[0])
    cases = " ".join(
        f"WHEN '{language}' THEN {sql.format(configuration=configuration)}"
        for language, configuration in CONFIGURATIONS.items()
    )
    return f"CASE c.meta ->> 'language' {cases} ELSE {sql.format(configuration=ENGLISH)} END"
