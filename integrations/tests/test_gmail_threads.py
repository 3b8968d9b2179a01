"""Text of mail from untrusted senders: charsets, HTML, nested parts, limits."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from integrations.providers.gmail import mapping, threads
from testing.fakes.gmail import NEWEST, attachment, message, multipart, text_part


def texts(*parts: dict[str, Any], kind: str = "mixed") -> str:
    return threads.message_text(multipart(*parts, kind=kind))


@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_base64url_is_read_with_or_without_its_padding(padding: int) -> None:
    text = "ü?>" * 5 + "x" * padding
    part = text_part(text)
    assert "=" not in part["body"]["data"]

    assert texts(part) == text
    part["body"]["data"] += "=" * (-len(part["body"]["data"]) % 4)
    assert texts(part) == text


@pytest.mark.parametrize(
    ("content", "charset", "read"),
    [
        ("Grüße", "UTF-8", "Grüße"),
        ("Grüße", "iso-8859-1", "Grüße"),
        ("“Grüße”", "windows-1252", "“Grüße”"),
        ("保険の更新", "iso-2022-jp", "保険の更新"),
        ("保険", "Shift_JIS", "保険"),
        ("Привет", "koi8-r", "Привет"),
        ("Grüße", "utf-16", "Grüße"),
    ],
)
def test_a_part_is_decoded_in_its_declared_charset(content: str, charset: str, read: str) -> None:
    assert texts(text_part(content.encode(charset), charset=charset)) == read


@pytest.mark.parametrize("charset", ["no-such-charset", "hex", "punycode", "idna", "unicode_escape", "", "x" * 5000])
def test_an_untrusted_charset_is_decoded_as_utf_8_with_replacements(charset: str) -> None:
    assert texts(text_part(b"Gr\xfc\xdfe \\u0041-", charset=charset)) == "Gr��e \\u0041-"


def test_text_that_gmail_decoded_to_utf_8_is_not_decoded_twice() -> None:
    assert texts(text_part("Grüße", charset="ISO-8859-1")) == "Grüße"


@pytest.mark.parametrize("data", ["!!!!", "A", "====", "é", "QQ==QQ==", 7, None, ["QQ"]])
def test_a_body_that_is_not_base64_is_empty(data: object) -> None:
    part = {"mimeType": "text/plain", "headers": [], "body": {"data": data}}

    assert isinstance(texts(part), str)


def test_plain_text_is_preferred_and_html_read_where_there_is_none() -> None:
    plain, blank = text_part("plain"), text_part(" \r\n")
    html = text_part("<p>markup</p>", mime="text/html")

    assert texts(html, plain, kind="alternative") == "plain"
    assert texts(blank, html, kind="alternative") == "markup"
    assert texts(plain, html, kind="mixed") == "plain\n\nmarkup"


def test_attachments_are_named_and_not_read() -> None:
    secret = {**text_part("their content"), "filename": "notes.txt"}
    forwarded = {**multipart(text_part("inside"), kind="mixed"), "mimeType": "message/rfc822", "filename": "old.eml"}
    payload = multipart(text_part("hello"), attachment("q.pdf"), secret, forwarded, kind="mixed")

    assert threads.message_text(payload) == "hello"
    assert threads.attachment_names(payload) == ["q.pdf", "notes.txt", "old.eml"]


HOSTILE = {
    "script": ("<p>a</p><script>steal()</script><p>b</p>", "a\n\nb"),
    "script in capitals": ("a<SCRIPT type=x>steal()</ScRiPt >b", "ab"),
    "style": ("<style>p{x:url(y)}</style>a", "a"),
    "title": ("<head><title>t</title></head>a", "a"),
    "handler": ('<img src=x onerror="steal()">a', "a"),
    "link": ('<a href="javascript:steal()">a</a>', "a"),
    "comment": ("a<!-- <b>hidden</b> -->b", "ab"),
    "comment without end": ("a<!-- <b>hidden</b>", "a"),
    "for one mail program": ("<!--[if mso]>x<![endif]-->a<![if !mso]>b<![endif]>", "ab"),
    "script without end": ("a<script>steal(", "a"),
    "tag that is text": ("a&lt;script&gt;b", "a<script>b"),
    "letters": ("&euro;&#8364;&#x20AC; &#99999999999999; &#" + "9" * 10_000 + "; a &lt b", "€€€ � � a < b"),
    "cells and lines": ("<table><tr><td>a</td><td>b</td></tr></table>c<br>d", "a b\n\nc\nd"),
    "lines of the markup": ("one\r\nsentence <b>goes</b>\n on", "one sentence goes on"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_html_becomes_text_without_anything_active(name: str) -> None:
    markup, text = HOSTILE[name]

    assert texts(text_part(markup, mime="text/html")) == text


UNITS = [
    *("<b>", "<div>", "x<p>", "<table><tr><td>", "<!--", "-->", "<", "<a", "<a href='", "</", "<![", "<script>", "&#"),
    *("<script></script ", "<style", "&", "&amp", "<!--x-->", "<title>x</title>", "<svg><math>"),
]


@pytest.mark.parametrize("unit", UNITS)
def test_html_is_read_in_linear_time(unit: str) -> None:
    short, long = (unit * (size // len(unit)) for size in (40_000, 400_000))

    assert cost(long) < 40 * max(cost(short), 0.001)


def cost(markup: str) -> float:
    def once() -> float:
        began = time.process_time()
        threads.html_text(markup)
        return time.process_time() - began

    return min(once() for _ in range(2))


def nested(depth: int) -> dict[str, Any]:
    part = text_part("found")
    for _ in range(depth):
        part = multipart(part, kind="mixed")
    return part


def test_nested_parts_are_read_to_a_limited_depth() -> None:
    assert threads.message_text(nested(5)) == "found"
    assert threads.message_text(nested(900)) == ""
    assert threads.attachment_names(nested(900)) == []


def test_parts_and_bytes_read_are_bounded() -> None:
    small, large = [text_part("x")] * 10_000, [text_part("x" * 900_000)] * 8

    assert threads.message_text(multipart(*small, kind="mixed")).count("x") < threads.MOST_PARTS
    assert threads.message_text(multipart(*large, kind="mixed")).count("x") <= threads.MOST_BYTES_OF_THREAD


def test_a_thread_is_stored_up_to_a_length_the_newest_messages_first() -> None:
    old = [message("o" * 150_000, moment=NEWEST - n * 1000) for n in (3, 2, 1)]
    payload = threads.thread_payload({"id": "t", "messages": [*old, message("the newest", moment=NEWEST)]})

    assert payload is not None
    lengths = [len(each["body_text"]) for each in payload["messages"]]
    assert lengths == [0, 200_000 - 150_000 - 10, 150_000, 10]
    assert len(mapping.map_record(mapping.thread_item(payload)).text) <= mapping.MOST_CHARS


WORDS = st.sampled_from(["parts", "body", "data", "headers", "name", "value", "mimeType", "filename"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(payload=st.dictionaries(st.sampled_from(["parts", "body", "headers", "mimeType", "filename"]), JSON))
@hypothesis_settings(max_examples=60, database=None)
def test_any_payload_can_be_read(payload: dict[str, Any]) -> None:
    stored_payload = threads.thread_payload(
        {"id": "t", "messages": [{"id": "m", "internalDate": "1", "payload": payload}]}
    )

    assert stored_payload is not None
    assert json.dumps(stored_payload)
    mapping.map_record(mapping.thread_item(stored_payload))


@pytest.mark.parametrize("wrong", ["", "soon", "-5", "9" * 20, "\uff11"])
def test_a_message_without_a_time_raises_value_error(wrong: str) -> None:
    with pytest.raises(ValueError, match="time"):
        threads.thread_payload({"id": "t", "messages": [message("x") | {"internalDate": wrong}]})
