"""Lexemes of queries and chunks, by PostgreSQL's text search configurations."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID

# PostgreSQL's text search configurations by the language in a chunk's meta. Another one changes
# embeddings.models.DocumentChunk.search too.
ENGLISH = "english"
CONFIGURATIONS = {"es": "spanish"}
# PostgreSQL's parser takes "screening/immunization" for the path of a file, one word.
PARTED = r"regexp_replace({}, '([[:alpha:]])/(?=[[:alpha:]])', '\1 ', 'g')"
LEXEMES = f"""
    SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, {PARTED.format("text")}))
    FROM unnest(%(texts)s::text[]) WITH ORDINALITY t(text, number) ORDER BY number"""
# For several languages: a stop word of any of them is left out; "la" would be a rare word among English chunks, and
# score highest of all. Without its accent, "obligacion" or "garantia" has another stem.
LEXEMES_OF_SEVERAL = f"""
    WITH typed AS (SELECT DISTINCT lower(token) AS token FROM ts_parse('default', {PARTED.format("%(text)s::text")})),
    spelled AS (
        SELECT token FROM typed
        UNION SELECT regexp_replace(regexp_replace(token, 'ion$', 'ión'), 'i(as?)$', 'í\\1') FROM typed),
    read AS MATERIALIZED (
        SELECT token, tsvector_to_array(to_tsvector(configuration, token)) AS lexemes
        FROM spelled, unnest(%(configurations)s::regconfig[]) configuration)
    SELECT coalesce(array_agg(DISTINCT lexeme), '{{}}') FROM read, unnest(lexemes) lexeme
    WHERE token NOT IN (SELECT token FROM read WHERE lexemes = '{{}}')"""


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


Text = tuple[str, str]  # with its text search configuration

MAX_PIECES, MAX_CHARS = 50_000, 50  # about 10 MB of a configuration
# Lexemes of what stands between white space, by text search configuration.
_known: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)


def query_lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return the lexemes of a text: its stemmed words without stop words, each once."""
    if len(configurations) == 1:
        return sorted(text_lexemes([(text, configurations[0])]).popitem()[1])
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES_OF_SEVERAL, {"text": text, "configurations": list(configurations)})
        lexemes: list[str] = cursor.fetchone()[0]
    return lexemes


def text_lexemes(texts: Iterable[Text]) -> dict[Text, frozenset[str]]:
    """Return the lexemes of each text. The database is asked for words that are new to this process.

    Asking for all words of the sentences of ten passages took a fifth of a search's time.
    """
    by_configuration = defaultdict(list)
    for text, configuration in texts:
        by_configuration[configuration].append(text)
    lexemes = {}
    for configuration, own in by_configuration.items():
        split = [_split(text) for text in own]
        known = _known_lexemes(configuration, set(chain.from_iterable(split)))
        for text, pieces in zip(own, split, strict=True):
            lexemes[text, configuration] = frozenset(chain.from_iterable(map(known.__getitem__, pieces)))
    return lexemes


def _split(text: str) -> list[str]:
    """Split at white space, over which only markup and some signs join words."""
    return [text] if "<" in text or "~" in text else text.split()


def _known_lexemes(configuration: str, pieces: set[str]) -> Mapping[str, list[str]]:
    """Return the lexemes of these pieces, and of others."""
    known = _known[configuration]
    if not (new := list(pieces.difference(known))):
        return known
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES, {"configuration": configuration, "texts": new})
        read = {piece: lexemes for piece, (lexemes,) in zip(new, cursor.fetchall(), strict=True)}
    kept = {piece: lexemes for piece, lexemes in read.items() if len(piece) <= MAX_CHARS}
    if len(known) + len(kept) <= MAX_PIECES:
        known.update(kept)
    else:  # another thread may still read the old ones
        _known[configuration] = kept
    return read | {piece: known[piece] for piece in pieces.difference(read)}
