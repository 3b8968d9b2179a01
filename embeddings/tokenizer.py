"""Token counts as the embedding vendor bills them: cl100k, offline."""

from collections.abc import Iterable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol

ENCODING = "cl100k_base"


class _Tokenizer(Protocol):
    def count(self, text: str) -> int: ...
    def count_till_limit(self, text: str, token_limit: int) -> int | None: ...


def count_tokens(text: str) -> int:
    """Return how many cl100k tokens text has; `<|endoftext|>` and its like count as the ordinary text they are."""
    try:
        return _tokenizer().count(text)
    except UnicodeEncodeError:
        return _tokenizer().count(_encodable(text))


def fits_in_tokens(text: str, limit: int) -> bool:
    """Return whether text has at most limit tokens, reading no further than that."""
    try:
        return _tokenizer().count_till_limit(text, limit) is not None
    except UnicodeEncodeError:
        return _tokenizer().count_till_limit(_encodable(text), limit) is not None


def truncate(text: str, limit: int) -> str:
    """Return the longest beginning of text that has at most limit tokens."""
    if len(text) * 4 <= limit or fits_in_tokens(text, limit):  # a token is at least a byte
        return text
    short, long = 0, len(text)
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (middle, long) if fits_in_tokens(text[:middle], limit) else (short, middle)
    return text[:short]


def count_many(texts: Iterable[str]) -> list[int]:
    return [count_tokens(text) for text in texts]


def recount_tokens(text: str, start: int, old_end: int, new_end: int, known: int) -> int:
    """Return the count of text up to new_end when text[start:old_end], and what it follows, is known to count `known`.

    Counts only what is near the ends. cl100k never joins a visible character and the space after it in one token,
    so the counts of the two sides of such a seam add up exactly.
    """
    seam = text.rfind(" ", start + 1, min(old_end, new_end))
    while seam > start and text[seam - 1].isspace():
        seam = text.rfind(" ", start + 1, seam)
    if seam <= start:
        return -1
    return known - count_tokens(text[seam:old_end]) + count_tokens(text[seam:new_end])


def _encodable(text: str) -> str:
    """Return text with what has no UTF-8 form, a lone surrogate, as the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@cache
def _tokenizer() -> _Tokenizer:
    # Importing the package itself builds three vocabularies in Python first (0.6 s, 60 MB, a DeprecationWarning on
    # 3.11) and its `Encoding` refuses a million characters. The extension beside it needs none of that.
    package = find_spec("bpe_openai")
    spec = PathFinder.find_spec("_bindings", package.submodule_search_locations if package else [])
    if not spec or not spec.loader:
        raise ModuleNotFoundError("bpe-openai is not installed with its extension", name="bpe_openai")
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    tokenizer: _Tokenizer = bindings.tokenizer_for_encoding(ENCODING)
    return tokenizer
