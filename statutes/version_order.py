"""Order of the versions of a law."""

import re
from datetime import datetime

from statutes.models import Law, LawVersion

_PART = re.compile(r"[0-9]+|[^\W\d_]+")


def is_older(version: str, ingested: datetime | None, *, than: str, than_ingested: datetime | None) -> bool:
    """Tell whether ``version`` is the older: by the numbers in both, and where these are equal by ingestion time."""
    key, other_key = sort_key(version), sort_key(than)
    if key != other_key or version == than:
        return key < other_key
    return ingested is None or (than_ingested is not None and ingested < than_ingested)


def is_outdated(law_id: str, version: str, ingested: datetime | None) -> bool:
    """Tell whether a newer version of the law than ``version``, which was ingested at ``ingested``, is live."""
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return False
    live = LawVersion.objects.filter(document_id=law.document_id).values_list("ingest_timestamp", flat=True).first()
    return is_older(version, ingested, than=law.version, than_ingested=live)


def sort_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key by which versions sort: numbers as numbers, and after words; separators do not matter."""
    parts = _PART.findall(version.casefold())
    # A number sorts by its digits and not as an int, which takes at most 4,300 of them.
    return tuple((1, len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (0, 0, part) for part in parts)
