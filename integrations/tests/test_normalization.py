"""Normalization of records' text and JSON."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from embeddings import tokenizer
from integrations.records.jsonb_codec import dump_json, load_json
from integrations.records.text_normalization import MOST_TOKENS, RecordText, normalize_text, truncate_for_embedding


@given(st.text(st.characters(codec=None) | st.sampled_from(" \t\r\n\x00\u2028\ud800")))
@settings(max_examples=300)
def test_normalizing_twice_changes_nothing(raw: str) -> None:
    once = normalize_text(raw)

    assert normalize_text(once) == once
    assert once.encode().decode() == once
    assert "\x00" not in once


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("  a \t b\r\nc\rd ", "a b\nc\nd"),
        ("a\n \n\n \nb", "a\n\nb"),
        ("a\x00b\ud800c", "abc"),
        ("Ångström, 保険 👩‍⚕️", "Ångström, 保険 👩‍⚕️"),
        (" \n\x00 ", ""),
    ],
)
def test_runs_of_spaces_and_blank_lines_are_one(raw: str, text: str) -> None:
    assert normalize_text(raw) == text


def test_texts_that_look_the_same_have_the_same_sha() -> None:
    assert RecordText.normalize("a  b\r\n").sha == RecordText.normalize(" a b").sha != RecordText.normalize("a c").sha


def test_a_long_text_is_truncated_for_every_model() -> None:
    assert truncate_for_embedding("x" * 100_000) == "x" * len(truncate_for_embedding("x" * 100_000))
    assert tokenizer.count_tokens(truncate_for_embedding("0 1 2 " * 20_000)) <= MOST_TOKENS


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ({"a": Decimal("239.00"), "b": Decimal("1E+3")}, '{"a":239.00,"b":1E+3}'),
        ({"a": "x\x00y", "b\x00": 1}, '{"a":"xy","b":1}'),
        ({"a": "\\u0000", "b": '\\"\x00"'}, '{"a":"\\\\u0000","b":"\\\\\\"\\""}'),
        ({"a": "x\ud800y", "big": 2**70}, '{"a":"xy","big":1180591620717411303424}'),
        ({"a": [None, True, {"b": "é"}]}, '{"a":[null,true,{"b":"é"}]}'),
    ],
)
def test_payloads_survive_a_round_trip(payload: dict[str, Any], stored: str) -> None:
    assert dump_json(payload) == stored


@pytest.mark.parametrize("payload", [{"a": object()}, {"a": Decimal("NaN")}, {"a": {1, 2}}])
def test_a_payload_that_is_not_json_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        dump_json(payload)


def test_a_payload_that_is_nested_too_deeply_is_refused() -> None:
    payload: Any = []
    for _ in range(5_000):
        payload = [payload]

    with pytest.raises(ValueError, match="not JSON"):
        dump_json({"a": payload})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.django_db
@given(st.dictionaries(st.text(), json_values, max_size=4))
@settings(max_examples=150)
def test_the_database_takes_every_payload(payload: dict[str, Any]) -> None:
    written = dump_json(payload)

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [written])
        assert load_json(cursor.fetchone()[0]) == json.loads(written)
