"""Deterministic ids, against UUIDv5 of the keys as MVP context §3 spells them."""

from uuid import UUID, uuid5

from documents import deterministic_ids
from documents.deterministic_ids import canonical_json, uuidv5

NAMESPACE = UUID("6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42")
USER, DOCUMENT, CHUNK = (UUID(int=number) for number in (1, 2, 3))


def test_the_keys_are_those_of_the_specs() -> None:
    assert deterministic_ids.document_id(USER, "ab12") == uuid5(NAMESPACE, f"{USER}:ab12")
    assert deterministic_ids.parse_id(DOCUMENT, "llamaparse", "2025-08-01") == uuid5(
        NAMESPACE, f"{DOCUMENT}:llamaparse:2025-08-01"
    )
    assert deterministic_ids.chunk_id(DOCUMENT, "markdown-simple", "1", 7) == uuid5(
        NAMESPACE, f"{DOCUMENT}:markdown-simple:1:7"
    )
    assert deterministic_ids.embedding_id(CHUNK, "text-embedding-3-small", "1") == uuid5(
        NAMESPACE, f"{CHUNK}:text-embedding-3-small:1"
    )


def test_keys_are_lower_case_and_configurations_minified_with_sorted_keys() -> None:
    assert uuidv5("A", {"b": 1, "a": ["Ü", 2]}) == uuid5(NAMESPACE, 'a:{"a":["ü",2],"b":1}')
    assert canonical_json({"b": 1, "a": "Ü"}) == '{"a":"Ü","b":1}'
