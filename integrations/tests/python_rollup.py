"""Rollup of a client's children in Python: the reference for the database's rollup."""

from collections.abc import Iterable
from decimal import Decimal, localcontext

from integrations.models import SourceDocument
from integrations.providers.interface import Children, Rollup


def rollup_children(rollup: Rollup, documents: Iterable[SourceDocument]) -> Children:
    matching = [each for each in documents if each.document_type == rollup.document_type]

    def is_first(each: SourceDocument) -> bool:
        return rollup.first is not None and each.facts.get(rollup.first) is True

    def rank(each: SourceDocument) -> tuple[bool, str, int, str]:
        return is_first(each), each.facts.get(rollup.newest) or "", len(each.external_id), each.external_id

    with localcontext(prec=1000):
        amounts = [each.facts.get(rollup.total) for each in matching] if rollup.total else []
        total = sum((Decimal(amount) for amount in amounts if amount is not None), Decimal(0))
    return Children(sorted(matching, key=rank, reverse=True)[: rollup.most], sum(map(is_first, matching)), total)
