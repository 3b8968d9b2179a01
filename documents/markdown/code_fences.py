"""Code fences of Markdown: where each begins and ends, and the text between them."""

import re
from collections.abc import Iterator

# A backtick fence may not have backticks in its info string: that line is inline code.
_FENCE_LINE = re.compile(r"^ *+(`{3,}+(?=[^`\n]*+$)|~{3,}+)([^\n]*+)$", re.MULTILINE)


def split_code_fences(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (prose, the fence after it, its missing closer), the last without a fence; joined they are the text."""
    done = 0
    for start, end, closer in find_code_fences(text):
        yield text[done:start], text[start:end], closer
        done = end
    yield text[done:], "", ""


def find_code_fences(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, missing closer) of each fence, its first line to its last; a closed one misses nothing."""
    if "```" not in text and "~~~" not in text:
        return
    opener, start = "", 0
    for line in _FENCE_LINE.finditer(text):
        marks = line[1]
        if not opener:
            opener, start = marks, line.start()
        elif marks.startswith(opener) and not line[2].strip():
            yield start, line.end(), ""
            opener = ""
    if opener:
        yield start, len(text), opener
