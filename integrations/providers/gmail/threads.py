"""Conversion of Gmail's threads to the stored payload; text of MIME parts, bounded in depth, count and bytes."""

import binascii
import codecs
import html
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any

from integrations.providers.gmail.mapping import MOST_CHARS, message_time

MOST_DEPTH = 20  # of parts within parts; mail programs nest four or five
MOST_PARTS = 2_000  # of a thread; it has at most 100 messages
MOST_BYTES = 1_000_000  # of one part that is read
MOST_BYTES_OF_THREAD = 4_000_000  # read in a second or so, whatever a stranger sends
MOST_NAMES = 50
MOST_NAME_CHARS = 255

# The sender names the codec, and some of Python's take quadratic time or are no text at all.
_TRUSTED = frozenset({
    *("ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "big5", "gb2312", "gbk", "gb18030", "euc_jp", "euc_kr"),
    *("shift_jis", "iso2022_jp", "iso2022_kr", "cp932", "cp949", "cp950", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
    *(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
    *(f"cp{number}" for number in (437, 850, 852, 866, 874, *range(1250, 1259))),
})  # fmt: skip
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:+-]{1,40})""", re.IGNORECASE)
# Linear: no pattern looks beyond the next bracket, or it goes to the end. Parsers take quadratic time over markup that
# is nested (nh3) or left open (html.parser).
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|title)\b[^<>]*+>.*?(?:</\1[\s/]*+>|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[/!?]?([a-z\[][a-z0-9]*+)[^<>]*+>", re.IGNORECASE)
_ENDS_LINE = {
    *("p", "div", "br", "hr", "tr", "li", "ul", "ol", "dl", "dt", "dd", "table", "blockquote", "pre", "section"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "article", "header", "footer", "center"),
}
_CELLS = {"td", "th"}
_NO_LETTER = re.compile(r"&#(?:\d{8,}+|x[0-9a-f]{8,}+);?", re.IGNORECASE)
# Mail that its owner deleted, did not want, or never sent.
HIDDEN = {"TRASH", "SPAM", "DRAFT"}
MOST_HEADER_CHARS = 2_000  # a message may have thousands of recipients


class ReadBudget:
    """The parts and bytes of a thread that may still be read."""

    def __init__(self) -> None:
        self.parts, self.octets = MOST_PARTS, MOST_BYTES_OF_THREAD

    def spend_part(self) -> bool:
        self.parts -= 1
        return self.parts >= 0

    def spend(self, base64: str) -> str:
        """Return as much of a part's base64 as may be read."""
        base64 = base64[: min(MOST_BYTES, self.octets) * 4 // 3]
        self.octets -= len(base64) * 3 // 4
        return base64


def thread_payload(thread: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the payload of a thread of ``threads.get``; None when its owner sees no message of it any more.

    Raises ``ValueError`` for a malformed response.
    """
    messages = thread.get("messages", [])
    if not isinstance(thread.get("id"), str) or not isinstance(messages, list):
        raise ValueError("a thread of another shape")
    visible = sorted((message for message in messages if is_visible(message)), key=message_time)
    if not visible:
        return None
    # The newest first, as they carry the outcome, until there is as much text as is stored.
    budget, left, payloads = ReadBudget(), MOST_CHARS, []
    for message in reversed(visible):
        payload = _message_payload(message, budget if left else None)
        payload["body_text"] = payload["body_text"][:left]
        left -= len(payload["body_text"])
        payloads.append(payload)
    return {"id": thread["id"], "snippet": str(visible[-1].get("snippet", "")), "messages": payloads[::-1]}


def is_visible(message: Any) -> bool:
    if not isinstance(message, Mapping):
        raise ValueError("a message of another shape")
    labels = message.get("labelIds", [])
    return not (isinstance(labels, list) and HIDDEN & {label for label in labels if isinstance(label, str)})


def _message_payload(message: Mapping[str, Any], budget: ReadBudget | None) -> dict[str, Any]:
    part = message.get("payload")
    part = part if isinstance(part, Mapping) else {}
    fields = {
        "id": str(message.get("id", "")),
        **{name: _header_text(part, name) for name in ("from", "to", "cc", "subject")},
        "internalDate": message["internalDate"],
        "body_text": message_text(part, budget) if budget else "",
        "attachments": attachment_names(part),
    }
    return {name: field for name, field in fields.items() if field or name not in ("cc", "attachments")}


def _header(part: Mapping[str, Any], name: str) -> str:
    headers = part.get("headers")
    for header in headers if isinstance(headers, list) else []:
        if isinstance(header, Mapping) and str(header.get("name", "")).lower() == name:
            return str(header.get("value", ""))[:MOST_HEADER_CHARS]
    return ""


def _header_text(part: Mapping[str, Any], name: str) -> str:
    """Return a header as text, "" without one; Gmail has usually decoded encoded words already."""
    text = " ".join(_header(part, name).split())
    try:
        return str(make_header(decode_header(text))) if "=?" in text else text
    except (HeaderParseError, LookupError, ValueError):
        return text


def message_text(payload: Mapping[str, Any], budget: ReadBudget | None = None) -> str:
    """Return the visible text of a message, plain text before HTML; attachments are not read."""
    texts = _texts(payload, budget or ReadBudget(), 0)
    return "\n\n".join(filter(None, (text.strip() for text in texts)))


def attachment_names(payload: Mapping[str, Any]) -> list[str]:
    names = (part.get("filename") for part in _parts(payload, ReadBudget(), 0))
    return [name[:MOST_NAME_CHARS] for name in names if isinstance(name, str) and name][:MOST_NAMES]


def _parts(part: Mapping[str, Any], budget: ReadBudget, depth: int) -> Iterator[Mapping[str, Any]]:
    if not budget.spend_part():
        return
    yield part
    if depth < MOST_DEPTH:
        for child in _children(part):
            yield from _parts(child, budget, depth + 1)


def _texts(part: Mapping[str, Any], budget: ReadBudget, depth: int) -> list[str]:
    if part.get("filename") or depth > MOST_DEPTH or not budget.spend_part():
        return []
    mime = str(part.get("mimeType", "")).lower()
    if mime == "multipart/alternative":  # the first form with a text: the simplest stands first (RFC 2046 §5.1.4)
        plain_first = sorted(_children(part), key=lambda child: child.get("mimeType") != "text/plain")
        forms = (_texts(child, budget, depth + 1) for child in plain_first)
        return next((texts for texts in forms if any(text.strip() for text in texts)), [])
    if mime == "text/plain":
        return [_decoded(part, budget)]
    if mime == "text/html":
        return [html_text(_decoded(part, budget))]
    return [text for child in _children(part) for text in _texts(child, budget, depth + 1)]


def _children(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    children = part.get("parts")
    return [child for child in children if isinstance(child, Mapping)] if isinstance(children, list) else []


def _decoded(part: Mapping[str, Any], budget: ReadBudget) -> str:
    """Decode a part's text. Gmail returns most bodies in UTF-8 whatever their header says; bad bytes are replaced."""
    body = part.get("body")
    base64 = body.get("data") if isinstance(body, Mapping) else None
    if not isinstance(base64, str):
        return ""
    content = _decode_base64(budget.spend(base64))
    charset = _CHARSET.search(_header(part, "content-type")[:1000])
    try:
        codec = codecs.lookup(charset[1] if charset else "").name
    except LookupError:
        codec = ""
    if not codec.startswith(("iso2022", "utf-16")):  # plain ASCII to a decoder that does not know them
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return content.decode(codec if codec in _TRUSTED else "utf-8", "replace")


def _decode_base64(text: str) -> bytes:
    """Decode base64url; its padding may be missing, and it may have been cut off."""
    digits = text.encode("ascii", "ignore").rstrip(b"=\r\n ")
    digits = digits[:-1] if len(digits) % 4 == 1 else digits
    try:
        return urlsafe_b64decode(digits + b"=" * (-len(digits) % 4))
    except binascii.Error:
        return b""


def html_text(markup: str) -> str:
    """Return the text of HTML without scripts and styles, each block on its own line. The result is text, not HTML."""

    def separator(tag: re.Match[str]) -> str:
        name = tag[1].lower()
        return "\n" if name in _ENDS_LINE else " " if name in _CELLS else ""

    visible = _TAG.sub(separator, _HIDDEN.sub("", " ".join(markup.split())))
    text = html.unescape(_NO_LETTER.sub("\ufffd", visible))
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))
