"""Lexemes of queries and chunks, by PostgreSQL's text search configurations."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID

# PostgreSQL's text search configurations by the language in a chunk's meta. Another one changes
# embeddings.models.DocumentChunk.search too.
ENGLISH = "english"
CONFIGURATIONS = {"es": "spanish"}
LEXEMES = "SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(text)s))"
# For several languages: a stop word of any of them is left out; "la" would be a rare word among English chunks, and
# score highest of all. Without its accent, "obligacion" or "garantia" has another stem.
LEXEMES_OF_SEVERAL = """
    WITH typed AS (SELECT DISTINCT lower(token) AS token FROM ts_parse('default', %(text)s)),
    spelled AS (
        SELECT token FROM typed
        UNION SELECT regexp_replace(regexp_replace(token, 'ion$', 'ión'), 'i(as?)$', 'í\\1') FROM typed),
    read AS MATERIALIZED (
        SELECT token, tsvector_to_array(to_tsvector(configuration, token)) AS lexemes
        FROM spelled, unnest(%(configurations)s::regconfig[]) configuration)
    SELECT coalesce(array_agg(DISTINCT lexeme), '{}') FROM read, unnest(lexemes) lexeme
    WHERE token NOT IN (SELECT token FROM read WHERE lexemes = '{}')"""


def configs_of_tenant(user_id: UUID) -> tuple[str, ...]:
    """Return the configurations of a tenant's chunks: those of statutes name their language, uploads do not."""
    return (ENGLISH, *CONFIGURATIONS.values()) if user_id == SYSTEM_TENANT_ID else (ENGLISH,)


def config_of_chunk(meta: Mapping[str, Any]) -> str:
    return CONFIGURATIONS.get(str(meta.get("language")), ENGLISH)


def per_config_sql(sql: str, configurations: Sequence[str]) -> str:
    """Return ``sql`` on a chunk ``c`` with its ``{configuration}`` filled in by the chunk's language."""
    if len(configurations) == 1:
        return sql.format(configuration=configurations[0])
    cases = " ".join(
        f"WHEN '{language}' THEN {sql.format(configuration=configuration)}"
        for language, configuration in CONFIGURATIONS.items()
    )
    return f"CASE c.meta ->> 'language' {cases} ELSE {sql.format(configuration=ENGLISH)} END"


def query_lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return the lexemes of a text: its stemmed words without stop words, each once."""
    params: dict[str, Any] = {"text": text, "configuration": configurations[0], "configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES if len(configurations) == 1 else LEXEMES_OF_SEVERAL, params)
        lexemes: list[str] = cursor.fetchone()[0]
    return lexemes
