"""Neighbouring chunks of one section, read as one passage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from embeddings.search.results import RetrievedChunk


def neighbours(found: Sequence[RetrievedChunk]) -> list[list[RetrievedChunk]]:
    """Return what follows each other in one section as one group in reading order; the group with the best first."""
    place = {one.ranked.chunk_id: at for at, one in enumerate(found)}
    ordered = sorted(found, key=lambda one: (one.document_id, one.chunker, one.ord))
    # Within a run of consecutive ordinals, the ordinal less the place in the order is one number.
    runs = groupby(
        enumerate(ordered),
        key=lambda at: (at[1].document_id, at[1].chunker, at[1].headings, at[1].ord - at[0]),
    )
    groups = [[one for _, one in run] for _, run in runs]
    return sorted(groups, key=lambda group: min(place[one.ranked.chunk_id] for one in group))


def joined(group: Sequence[RetrievedChunk]) -> str:
    """Return the group's text: what overlaps stands once, and so does a table's header."""
    text, end = group[0].text, group[0].end
    for one in group[1:]:
        body = one.body
        # Between two chunks stands nothing but white space, of which one line's end or an empty line is kept.
        text += body[end - one.start :] if one.start < end else "\n" * min(one.start - end, 2) + body
        end = one.end
    return text
