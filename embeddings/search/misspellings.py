"""Misspellings: terms of a tenant's passages for the words of a query that no passage has."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from accounts.prepared_statements import prepared_cursor
from embeddings.embedders.registry import get_embedder
from embeddings.embedders.wordllama import WordLlama
from embeddings.search.lexemes import ENGLISH, text_lexemes
from embeddings.search.vector_search import Scope

# The least is the mean of a word's and its lexeme's: most neighbours of short ones are other words ("trails", "train").
# The comparison takes the square of the length.
MIN_LENGTH, MAX_LENGTH = 6, 30
TWO_SLIPS = 9  # from this length on
MAX_TERMS = 2_000  # that are compared with one lexeme: the tenant's terms with its first letter and about its length
MAX_LEXEMES = 3  # of one query; a pasted text has more unknown words than anybody misspells
# A slip of the pen seldom changes the first letter. The terms of documents' names begin with a control character.
IS_NEAR = """user_id = %(user)s AND term >= %(first)s AND term < %(beyond)s
    AND length(term) BETWEEN %(shortest)s AND %(longest)s"""
SELECT_TERMS = f"""
    SELECT term FROM document_terms WHERE {IS_NEAR} UNION SELECT term FROM posting_blocks WHERE {IS_NEAR}
    LIMIT %(most)s"""


def find_neighbours(scope: Scope, query: str, lexemes: Iterable[str]) -> dict[str, str]:
    """Return those ``lexemes`` of a query that may be misspelled, each with the nearest term of the tenant's passages.

    Call inside ``as_tenant``. Lexemes without a near term are left out.
    """
    written = _written_words(query, lexemes)
    known = _known_words(written.values())
    neighbours = {
        lexeme: _nearest(scope, lexeme)
        for lexeme in [each for each, word in written.items() if word not in known][:MAX_LEXEMES]
    }
    return {lexeme: term for lexeme, term in neighbours.items() if term}


def correct_words(query: str, replaced: Mapping[str, str], texts: Sequence[str]) -> str:
    """Return the query with a word of the texts in the place of each misspelled one: models read words, not lexemes."""
    for lexeme, word in _written_words(query, replaced).items():
        pattern = re.compile(rf"\b{re.escape(replaced[lexeme])}[^\W\d_]*", re.IGNORECASE)
        found = next(filter(None, map(pattern.search, texts)), None)
        if found:
            query = re.sub(rf"\b{word}\b", found[0].lower(), query, flags=re.IGNORECASE)
    return query


def _written_words(query: str, lexemes: Iterable[str]) -> dict[str, str]:
    """Return those of the lexemes that stand for a long English word of the query, with that word."""
    words = [each for each in re.findall(r"[^\W\d_]+", query.lower()) if each.isascii() and len(each) <= MAX_LENGTH]
    stems = text_lexemes((word, ENGLISH) for word in words)
    written = {
        lexeme: word for (word, _), own in stems.items() for lexeme in own if len(word) + len(lexeme) >= 2 * MIN_LENGTH
    }
    return {lexeme: written[lexeme] for lexeme in lexemes if lexeme in written}


def _known_words(words: Collection[str]) -> set[str]:
    """Return the words that the local model's tokenizer has whole: nobody misspelled these."""
    model = cast(WordLlama, get_embedder("local"))
    return {word for word, own in zip(words, model.tokens([*words]), strict=True) if len(own) == 1} if words else set()


def _nearest(scope: Scope, lexeme: str) -> str | None:
    most = 2 if len(lexeme) >= TWO_SLIPS else 1
    params = {
        "first": lexeme[0],
        "beyond": chr(ord(lexeme[0]) + 1),
        "shortest": len(lexeme) - most,
        "longest": len(lexeme) + most,
        "most": MAX_TERMS,
    }
    with prepared_cursor() as cursor:
        cursor.execute(SELECT_TERMS, scope.params | params)
        terms = [term for (term,) in cursor.fetchall()]
    letters = set(lexeme)
    near = [(count_slips(lexeme, term), term) for term in terms if len(letters.symmetric_difference(term)) <= 2 * most]
    return next((term for slips, term in sorted(near) if slips <= most), None)


def count_slips(one: str, other: str) -> int:
    """Return how many letters are put in, left out, replaced, or swapped with the next, between two words."""
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before, row = before, row, [at]
        for place, own in enumerate(other, 1):
            cost = min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != own))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == own:
                cost = min(cost, earlier[place - 2] + 1)
            row.append(cost)
    return row[-1]
