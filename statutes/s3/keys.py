"""S3 keys of a law's objects: the spec's paths, safe for any law id."""

import hashlib
from urllib.parse import quote
from uuid import UUID

RAW = "raw/"  # prefix of statute files that others upload; our own objects have other prefixes
MAX_NAME_CHARS = 200  # S3 allows keys of 1024 bytes


def law(law_id: str) -> str:
    return f"normalized/{quote_name(law_id)}/law.json"


def manifest(law_id: str) -> str:
    return f"normalized/{quote_name(law_id)}/manifest.json"


def former(law_id: str) -> str:
    """Return the prefix under which the last complete law is kept while another replaces it."""
    return f"normalized/{quote_name(law_id)}/former/"


def chunks(law_id: str) -> str:
    return f"chunks/{quote_name(law_id)}/"


def chunk(law_id: str, chunk_id: UUID) -> str:
    return f"{chunks(law_id)}{chunk_id}.json"


def vectors(law_id: str) -> str:
    return f"embeddings/{quote_name(law_id)}_vectors.jsonl"


def failed(law_id: str, version: str) -> str:
    return f"failed/{quote_name(law_id)}/{quote_name(version)}/"


def folders(law_id: str) -> tuple[str, ...]:
    """Return the prefixes of all our objects for a law but ``vectors``: another law's may begin alike."""
    return f"normalized/{quote_name(law_id)}/", chunks(law_id), f"failed/{quote_name(law_id)}/"


def quote_name(text: str) -> str:
    """Return one part of a key for any text: injective, and never a path to another folder."""
    quoted = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) > MAX_NAME_CHARS:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{quoted[: MAX_NAME_CHARS - 33]}~{digest}"
    return quoted or "%"
